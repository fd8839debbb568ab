package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/picture"
)

// checkPicture finds out before a long replay whether the picture can be written, and changes nothing.
func checkPicture(file string) error {
	if file == "" {
		return nil
	}
	_, err := os.Stat(file)
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return noPicture(file, err)
	}
	_ = f.Close()
	if isNew {
		_ = os.Remove(file)
	}
	return nil
}

func noPicture(file string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("--svg: cannot write %q (%w); name a file in a directory of yours", file, err)
}

// draw writes the picture, if one is asked for.
func (p *report) draw() error {
	if p.Picture == "" {
		return nil
	}
	d := picture.Picture{Title: p.title(), Yearless: p.yearless(), Timeline: p.timeline}
	if !p.yearless() {
		d.Zone = "UTC"
	}
	for _, s := range p.Sets {
		d.Sets = append(d.Sets, picture.Set{Name: s.limits(), Waits: s.waits, Denied: s.Denied})
	}
	var svg bytes.Buffer
	if err := picture.Draw(&svg, d); err != nil {
		return err
	}
	if err := os.WriteFile(p.Picture, svg.Bytes(), 0o644); err != nil {
		return noPicture(p.Picture, err)
	}
	return nil
}

func (p *report) title() string {
	if len(p.Sets) > 1 {
		return fmt.Sprintf("%s: %s", p.source(), number(p.Attempts, "attempt"))
	}
	return fmt.Sprintf("%s: %d of %s denied", p.source(), p.Sets[0].Denied, number(p.Attempts, "attempt"))
}
