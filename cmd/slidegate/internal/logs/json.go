package logs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// jsonLines reads logs with one JSON object per line. The name of a field is looked up at the top
// level first, and then interpreted as a path into nested objects, such as request.remote_ip. A
// field "units" contains the units of the attempt.
type jsonLines struct{ named }

var errNoObject = errors.New("it is not a JSON object")

// isJSON reports whether a line is a JSON object.
func isJSON(line string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, " \t\r\n"), "{") && gjson.Valid(line)
}

func asJSON(line string, o Options, dated bool) format {
	if !isJSON(line) {
		return nil
	}
	return &jsonLines{newNamed(o, dated)}
}

func (j *jsonLines) byDefault(line string) string { return j.eventOf(jsonObject{gjson.Parse(line)}) }

func (j *jsonLines) vote(line string) string {
	if !isJSON(line) {
		return ""
	}
	return firstOf(jsonObject{gjson.Parse(line)}, eventNames)
}

func (j *jsonLines) read(line, field string) (a Attempt, err error) {
	if !isJSON(line) {
		return Attempt{}, errNoObject
	}
	return j.named.read(jsonObject{gjson.Parse(line)}, field)
}

// jsonObject is a line that consists of a JSON object.
type jsonObject struct{ gjson.Result }

func (o jsonObject) field(name string) (string, bool, error) {
	v := lookUp(o.Result, name)
	if !v.Exists() {
		return "", false, nil
	}
	s, err := text(v, name)
	return s, true, err
}

func (o jsonObject) names() []string { return namesIn(o.Result, "") }

// namesIn returns the paths of all fields that hold a single value, in object and the objects
// nested in it.
func namesIn(object gjson.Result, path string) (names []string) {
	for key, value := range object.ForEach {
		if name := path + key.Str; value.IsObject() {
			names = append(names, namesIn(value, name+".")...)
		} else if !value.IsArray() {
			names = append(names, name)
		}
	}
	return names
}

// lookUp finds a field by name or, failing that, by path.
func lookUp(object gjson.Result, name string) gjson.Result {
	v := member(object, name)
	if v.Exists() || !strings.Contains(name, ".") {
		return v
	}
	v = object
	for part := range strings.SplitSeq(name, ".") {
		v = member(v, part)
	}
	return v
}

// member returns the value of name in an object, even if name contains characters that are special
// to gjson. If the name occurs twice, the first occurrence counts.
func member(v gjson.Result, name string) gjson.Result {
	if !v.IsObject() {
		return gjson.Result{}
	}
	return v.Get(gjson.Escape(name))
}

// text returns the value of the named field without quotes, or "" for null.
func text(v gjson.Result, name string) (string, error) {
	switch {
	case v.IsObject():
		return "", fmt.Errorf("its %s is an object; name a field in it, as in %s.name", name, name)
	case v.IsArray():
		return "", fmt.Errorf("its %s is an array; name a field with a single value", name)
	case v.Type == gjson.Null:
		return "", nil
	}
	return literal(v), nil
}

// literal returns a value as a string. Numbers are spelled as in the input.
func literal(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}
	return v.Raw
}

// wholeNumber rewrites a whole number without decimals or an exponent: 3.0 becomes 3, and 1e2
// becomes 100.
func wholeNumber(s string) string {
	s = withoutExponent(s)
	if whole, fraction, _ := strings.Cut(s, "."); strings.Trim(fraction, "0") == "" {
		return whole
	}
	return s
}

// withoutExponent rewrites a number without its exponent and without loss: 1.741064767e9 becomes
// 1741064767. It returns a string unchanged if it is not such a number or is far larger than any
// time or number of units.
func withoutExponent(s string) string {
	e := strings.IndexAny(s, "eE")
	if e < 0 {
		return s
	}
	const most = 40
	exponent, err := strconv.Atoi(s[e+1:])
	whole, fraction, _ := strings.Cut(s[:e], ".")
	if err != nil || exponent < -most || exponent > most || whole == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return s
	}
	zeros := strings.Repeat("0", most)
	all := zeros + whole + fraction + zeros
	point := most + len(whole) + exponent
	moved := strings.TrimLeft(all[:point-1], "0") + all[point-1:point] + "." + all[point:]
	return strings.TrimRight(strings.TrimRight(moved, "0"), ".")
}
