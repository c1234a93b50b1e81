package strictyaml

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/internal/bounds"
)

func (c *converter) fault(at *yaml.Node, reason Reason, format string, args ...any) {
	f := Fault{Line: at.Line, Column: at.Column, Reason: reason, Msg: fmt.Sprintf(format, args...)}
	if reason == KeyType {
		f.Key = at.Value
	}
	c.faults = append(c.faults, f)
}

// stop reports that the file exceeds a bound. It drops all other errors, because the rest of the file is not read.
func (c *converter) stop(at *yaml.Node, format string, args ...any) {
	if !c.stopped {
		bounds.YAML.Reached()
		c.faults = nil
		c.fault(at, TooLarge, format, args...)
	}
	c.stopped = true
}

// alias adds the size of the aliased value to the counts without walking it. That makes a file that grows by aliases of
// aliases harmless.
func (c *converter) alias(y *yaml.Node, depth int) *Node {
	n, known := c.anchors[y.Alias]
	switch {
	case !known:
		return nil // the aliased value has an error, which is already reported
	case n == nil:
		c.fault(y, UnsupportedYAML, "the alias *%s is inside its own anchor: write the value out", y.Value)
		return nil
	}
	c.nodes += n.size
	switch {
	case c.nodes > MaxNodes:
		c.stop(y, tooManyNodes)
	case depth+n.height-1 > MaxDepth:
		c.stop(y, "values are nested deeper than %d levels: nest less", MaxDepth)
	default:
		return n
	}
	return nil
}
