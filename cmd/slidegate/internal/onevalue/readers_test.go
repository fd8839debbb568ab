package onevalue_test

import (
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

// variable returns the name of the variable in which a server puts a header field.
func variable(field string, keep *regexp.Regexp) string {
	return "HTTP_" + strings.ToUpper(keep.ReplaceAllString(field, "_"))
}

// fieldReaders lists which characters in field names servers replace by _: only hyphens, as in RFC
// 3875, or everything except letters and digits, as in lighttpd.
var fieldReaders = map[string]*regexp.Regexp{"CGI": regexp.MustCompile(`-`), "lighttpd": regexp.MustCompile(`[^A-Za-z0-9]`)}

// readFields returns all values that a server could read for the given field: those of all fields
// for which it uses the same variable.
func readFields(h http.Header, field string, keep *regexp.Regexp) (all []string) {
	for name, values := range h {
		if variable(name, keep) == variable(field, keep) {
			all = append(all, values...)
		}
	}
	return all
}

// cookieReader returns all values that a server could read for the cookie "session", before the
// server decodes percent-encodings. The value of an array is "array".
type cookieReader func(line string) []string

var cookieReaders = map[string]cookieReader{
	"Go": func(line string) (all []string) {
		for _, c := range (&http.Request{Header: http.Header{"Cookie": {line}}}).CookiesNamed("session") {
			all = append(all, c.Value)
		}
		return all
	},
	"http.cookies of Python": func(line string) []string {
		if value, found := simpleCookie(line)["session"]; found {
			return []string{value}
		}
		return nil
	},
	"Django":          split(";", false, strings.TrimSpace, quoted),
	"Node":            split(";", false, trimNode, plain),
	"ASP.NET":         split(";", true, func(s string) string { return strings.ToLower(percent(strings.TrimSpace(s))) }, plain),
	"PHP":             split(";", true, phpName, plain),
	"PHP before 7.4":  split(";", true, func(s string) string { return phpName(plus(percent(s))) }, plain),
	"Rack":            split(";", true, strings.TrimSpace, plain),
	"Rack before 2.2": split(";,", true, func(s string) string { return plus(percent(strings.Trim(s, " "))) }, plain),
	"Werkzeug before 2.2.3": func(line string) []string {
		return split(";", true, strings.TrimSpace, quoted)(nameless.ReplaceAllString(line, "$1"))
	},
	"RFC 2109": rfc2109,
}

var nameless = regexp.MustCompile(`(^|;)[\s=]+`)

// split returns a reader whose cookies end at any of the characters in ends. bare says whether a
// name without = is a cookie. name and value return how the server interprets names and values.
func split(ends string, bare bool, name, value func(string) string) cookieReader {
	return func(line string) (all []string) {
		for _, part := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(ends, r) }) {
			key, text, found := strings.Cut(part, "=")
			key = name(key)
			if found && strings.HasPrefix(key, "session[") && strings.Contains(key, "]") {
				key, text = "session", "array"
			}
			if key == "session" && (found || bare) {
				all = append(all, value(strings.Trim(text, " \t")))
			}
		}
		return all
	}
}

func plain(s string) string { return s }

// phpName returns the name that PHP gives a cookie.
func phpName(s string) string {
	s, _, _ = strings.Cut(strings.TrimLeft(s, " \t"), "\x00")
	if strings.Contains(s, "]") {
		return s
	}
	return strings.NewReplacer(" ", "_", ".", "_", "[", "_").Replace(s)
}

func plus(s string) string { return strings.ReplaceAll(s, "+", " ") }

// percent decodes the valid percent-encodings in s.
func percent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.Write(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// rfc2109 reads cookies that end at a semicolon or a comma outside quotes.
func rfc2109(line string) (all []string) {
	start, inQuotes := 0, false
	for i := 0; i <= len(line); i++ {
		if i < len(line) && line[i] == '"' {
			inQuotes = !inQuotes
		}
		if i == len(line) || !inQuotes && (line[i] == ';' || line[i] == ',') {
			if key, value, found := strings.Cut(line[start:i], "="); found && strings.Trim(key, " \t") == "session" {
				all = append(all, quoted(strings.Trim(value, " \t")))
			}
			start = i + 1
		}
	}
	return all
}

// quoted returns the value of a quoted text, in which a backslash precedes three octal digits or an
// escaped character.
func quoted(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	return quotedPair.ReplaceAllStringFunc(s[1:len(s)-1], func(pair string) string {
		if len(pair) == 4 {
			return string(rune(pair[1]-'0')<<6 | rune(pair[2]-'0')<<3 | rune(pair[3]-'0'))
		}
		return pair[1:]
	})
}

var quotedPair = regexp.MustCompile(`\\(?:[0-3][0-7][0-7]|.)`)

// simpleCookie returns the cookies that Python's http.cookies.SimpleCookie reads. A cookie ends at
// a space or a semicolon, and the last cookie with a given name counts. A name without a value
// makes the whole header field invalid. Whatever follows a text that is not a cookie, or a bad
// name, is ignored.
func simpleCookie(line string) map[string]string {
	var pairs [][2]string
	for line != "" {
		m := pythonCookie.FindStringSubmatch(line)
		if m == nil {
			break
		}
		line = line[len(m[0]):]
		key, value := m[1], m[3]
		isAttribute := pythonAttribute.MatchString(key)
		switch {
		case key[0] == '$' && len(pairs) == 0:
		case isAttribute && (len(pairs) == 0 || m[2] == "" && !pythonFlag.MatchString(key)), key[0] != '$' && !isAttribute && m[2] == "":
			return nil
		case !isAttribute:
			pairs = append(pairs, [2]string{key, value})
		}
	}
	cookies := map[string]string{}
	for _, pair := range pairs {
		if key, found := strings.CutPrefix(pair[0], "$"); found && pythonAttribute.MatchString(key) {
			continue
		} else if found || !pythonName.MatchString(pair[0]) {
			break
		}
		cookies[pair[0]] = quoted(pair[1])
	}
	return cookies
}

var (
	pythonCookie = regexp.MustCompile(`\A\s*([\w!#%&'~` + "`" + `><@,:/$*+\-.^|)(?}{=]+?)` + // name
		`(\s*=\s*("(?:[^\\"]|\\.)*"|\w{3},\s[\w\s-]{9,11}\s[\d:]{8}\sGMT|[\w!#%&'~` + "`" + `><@,:/$*+\-.^|)(?}{=\[\]]*))?` + // value
		`\s*(?:\s+|;|$)`)
	pythonAttribute = regexp.MustCompile(`(?i)\A(?:expires|path|comment|domain|max-age|secure|httponly|version|samesite)\z`)
	pythonName      = regexp.MustCompile("\\A[\\w!#$%&'*+\\-.^`|~:]+\\z")
	pythonFlag      = regexp.MustCompile(`(?i)\A(?:secure|httponly)\z`)
)

// trimNode trims as String.trim does where each byte of a header is a character: U+00A0, too.
func trimNode(s string) string {
	isSpace := func(i int) bool { return strings.IndexByte(" \t\xa0", s[i]) >= 0 }
	for s != "" && isSpace(0) {
		s = s[1:]
	}
	for s != "" && isSpace(len(s)-1) {
		s = s[:len(s)-1]
	}
	return s
}
