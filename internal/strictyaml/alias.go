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

// stop reports a bound. It is the only fault that counts then.
func (c *converter) stop(at *yaml.Node, format string, args ...any) {
	if !c.stopped {
		bounds.YAML.Reached()
		c.faults = nil
		c.fault(at, TooLarge, format, args...)
	}
	c.stopped = true
}

// alias adds what the alias stands for to the counts without walking it: that is what makes a bomb harmless.
func (c *converter) alias(y *yaml.Node, depth int) *Node {
	n, known := c.anchors[y.Alias]
	switch {
	case !known:
		return nil // what it stands for is at fault, and that was reported
	case n == nil:
		c.fault(y, UnsupportedYAML, "the alias *%s stands inside what it is an alias for: write the value out", y.Value)
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
