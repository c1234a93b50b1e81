package describe

import (
	_ "embed" // the page's template
	"html/template"
	"io"
)

//go:embed page.html
var pageHTML string

// pageTemplate escapes all values of rules according to their context.
var pageTemplate = template.Must(template.New("limits").Parse(pageHTML))

// WriteHTML writes a self-contained page.
func (d *Page) WriteHTML(w io.Writer) error {
	rows := d.rows()
	return pageTemplate.Execute(w, struct {
		Page     *Page
		Head     []string
		Rows     [][]string
		NoLimits string
		Backoff  []string
	}{d, rows[0], rows[1:], noLimits, backoff})
}
