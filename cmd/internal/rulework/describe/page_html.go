package describe

import (
	_ "embed" // the page's template
	"html/template"
	"io"
)

//go:embed page.html
var pageHTML string

// pageTemplate escapes all that comes from rules by where it stands.
var pageTemplate = template.Must(template.New("limits").Parse(pageHTML))

// WriteHTML writes a page that needs nothing else.
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
