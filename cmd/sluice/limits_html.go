package main

import (
	_ "embed" // the page's template
	"html/template"
	"io"
)

//go:embed limits.html
var limitsHTML string

// limitsTemplate escapes all that comes from rules by where it stands.
var limitsTemplate = template.Must(template.New("limits").Parse(limitsHTML))

func (d *limitsPage) writeHTML(w io.Writer) error {
	rows := d.rows()
	return limitsTemplate.Execute(w, struct {
		Page     *limitsPage
		Head     []string
		Rows     [][]string
		Intro    string
		NoLimits string
		Backoff  []string
	}{d, rows[0], rows[1:], limitedIntro, noLimits, backoff})
}
