package mostdenied

import (
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/window"
)

//go:embed page.html
var html string

//go:embed page.css
var style string

//go:embed page.js
var script string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"by": by, "count": count, "moment": moment, "rate": rate, "shown": shown}).Parse(html))

// policy is a Content-Security-Policy that stops browsers from loading anything, and from running
// anything except the page's own script, even if an event contains HTML.
var policy = fmt.Sprintf("default-src 'none'; img-src data:; connect-src 'self'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	hash(style), hash(script))

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// ServeHTTP serves the Report: to browsers as a page that updates itself, and to other clients as
// JSON. A client that accepts text/html is considered a browser. There is no access control: serve
// the List only where operators alone have access.
func (l *List) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Vary": "Accept",
		"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		w.Header().Set(name, value)
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, map[string]any{"Style": template.CSS(style), "Script": template.JS(script), "Report": l.Report()}) // the browser may be gone
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(l.Report()) // the client may be gone
}

// by says what denied the last attempt.
func by(e Entry) string {
	switch {
	case e.Override == window.OverrideBlock:
		return "blocked by an override"
	case e.Limit == "":
		return "no room in memory"
	case e.Override == window.OverrideLimits:
		return "limit " + e.Limit + " of an override"
	}
	return "limit " + e.Limit
}

// shown returns text unchanged, or quoted if it contains characters that cannot be seen or that
// change the writing direction.
func shown(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, isInvisible) {
		return strconv.QuoteToASCII(text)
	}
	return text
}

// isInvisible reports whether r cannot be printed, or prints as nothing. A space is visible.
func isInvisible(r rune) bool {
	const brailleBlank = '\u2800'
	return !strconv.IsPrint(r) || r == brailleBlank || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// count formats an integer with separators: 1,000,000.
func count(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// rate formats a rate. Below 10, it has two significant digits.
func rate(perMinute float64) string {
	if perMinute >= 10 {
		return count(int64(perMinute + 0.5))
	}
	return strconv.FormatFloat(perMinute, 'g', 2, 64)
}

// moment formats a time. It includes the date unless that is today.
func moment(t time.Time) string {
	if t.Format(time.DateOnly) == time.Now().UTC().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
