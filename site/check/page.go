package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// A page is what the checks need of an HTML file.
type page struct {
	title, description string
	headings           int             // <h1>
	ids                map[string]bool // that links can lead to
	twice              []string        // ids that occur again
	links, loads       []string
	unnamed            []string // images without alt text
}

// parse reads a page. Its HTML is close enough to XML for the parser of the standard library.
func parse(text string) (*page, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	p := &page{ids: map[string]bool{}}
	inTitle := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			inTitle = token.Name.Local == "title"
			p.element(token.Name.Local, attributes(token))
		case xml.EndElement:
			inTitle = false
		case xml.CharData:
			if inTitle {
				p.title += string(token)
			}
		}
	}
}

// attributes returns the attributes of an element by their names.
func attributes(e xml.StartElement) map[string]string {
	all := map[string]string{}
	for _, a := range e.Attr {
		all[a.Name.Local] = a.Value
	}
	return all
}

// element notes what an element says.
func (p *page) element(name string, attr map[string]string) {
	if id, ok := attr["id"]; ok {
		if p.ids[id] {
			p.twice = append(p.twice, id)
		}
		p.ids[id] = true
	}
	switch name {
	case "h1":
		p.headings++
	case "meta":
		if attr["name"] == "description" {
			p.description = attr["content"]
		}
	case "a":
		p.links = append(p.links, attr["href"])
	case "link":
		if attr["href"] != "data:," {
			p.loads = append(p.loads, attr["href"])
		}
	case "script", "iframe", "source", "video":
		p.loads = append(p.loads, attr["src"])
	case "img":
		p.loads = append(p.loads, attr["src"])
		if attr["alt"] == "" {
			p.unnamed = append(p.unnamed, attr["src"])
		}
	}
}
