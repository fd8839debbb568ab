package httplimit_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
)

// TestNamedTimes checks how long a response pauses turns, for each format of its time. The response
// arrives at a whole second.
func TestNamedTimes(t *testing.T) {
	const none = 0
	for name, test := range map[string]struct {
		status int
		header map[string]string // "date N", "unix N" and "milli N" are N seconds from now
		want   time.Duration
	}{
		"seconds":                   {429, map[string]string{"Retry-After": "7"}, 7 * time.Second},
		"seconds of 503":            {503, map[string]string{"Retry-After": "7"}, 7 * time.Second},
		"a fraction":                {429, map[string]string{"Retry-After": "0.25"}, 250 * time.Millisecond},
		"a date":                    {429, map[string]string{"Retry-After": "date 30"}, 30 * time.Second},
		"a date and a clock behind": {429, map[string]string{"Date": "date -7200", "Retry-After": "date -7190"}, 10 * time.Second},
		"a date and a clock ahead":  {429, map[string]string{"Date": "date 7200", "Retry-After": "date 7210"}, 10 * time.Second},
		"an invalid Date":           {429, map[string]string{"Date": "yesterday", "Retry-After": "date 10"}, 10 * time.Second},
		"RateLimit":                 {429, map[string]string{"RateLimit": `"a";r=0;t=5, "b";r=0;t=9, "c";r=3;t=40`}, 9 * time.Second},
		"seconds from now":          {429, map[string]string{"X-RateLimit-Reset": "7"}, 7 * time.Second},
		"seconds since 1970":        {429, map[string]string{"X-RateLimit-Reset": "unix 7"}, 7 * time.Second},
		"a fraction since 1970":     {429, map[string]string{"X-RateLimit-Reset": "unix 7.5"}, 7500 * time.Millisecond},
		"milliseconds since 1970":   {429, map[string]string{"X-RateLimit-Reset": "milli 7.25"}, 7250 * time.Millisecond},
		"the same, a clock behind":  {429, map[string]string{"Date": "date -7200", "X-RateLimit-Reset": "milli -7190"}, 10 * time.Second},
		"an HTTP date to reset":     {429, map[string]string{"X-RateLimit-Reset": "date 7"}, 7 * time.Second},
		"an RFC 3339 date":          {429, map[string]string{"X-RateLimit-Reset": "2000-01-01T00:00:07Z"}, 7 * time.Second},
		"nothing left":              {429, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"less than nothing left":    {429, map[string]string{"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"nothing left, a fraction":  {429, map[string]string{"X-RateLimit-Remaining": "0.0", "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"Retry-After counts first":  {429, map[string]string{"Retry-After": "3", "RateLimit": `"a";r=0;t=5`, "X-RateLimit-Reset": "7"}, 3 * time.Second},
		"a wrong Retry-After":       {429, map[string]string{"Retry-After": "soon", "RateLimit": `"a";r=0;t=5`, "X-RateLimit-Reset": "7"}, 5 * time.Second},
		"a wrong RateLimit":         {429, map[string]string{"RateLimit": `a=1;;`, "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"too long":                  {429, map[string]string{"Retry-After": "3600"}, time.Minute},
		"absurd":                    {429, map[string]string{"Retry-After": "99999999999999999999999999"}, time.Minute},
		"an absurd date":            {429, map[string]string{"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, time.Minute},
		"an absurd t":               {429, map[string]string{"RateLimit": `"a";r=0;t=999999999999999`}, time.Minute},
		"an absurd reset":           {429, map[string]string{"X-RateLimit-Reset": "99999999999"}, time.Minute},
		"nanoseconds since 1970":    {429, map[string]string{"X-RateLimit-Reset": "946684807000000000"}, none},
		"negative":                  {429, map[string]string{"Retry-After": "-7"}, none},
		"a negative t":              {429, map[string]string{"RateLimit": `"a";r=0;t=-5`}, none},
		"a negative reset":          {429, map[string]string{"X-RateLimit-Reset": "-7"}, none},
		"infinite":                  {429, map[string]string{"Retry-After": "Inf"}, none},
		"not a number":              {429, map[string]string{"Retry-After": "NaN"}, none},
		"in the past":               {429, map[string]string{"Retry-After": "date -5"}, none},
		"a reset in the past":       {429, map[string]string{"X-RateLimit-Reset": "unix -5"}, none},
		"zero":                      {429, map[string]string{"Retry-After": "0"}, none},
		"something is left":         {503, map[string]string{"X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "7"}, none},
		"left, and not a number":    {429, map[string]string{"X-RateLimit-Remaining": "some", "X-RateLimit-Reset": "7"}, none},
		"something is left, t":      {503, map[string]string{"RateLimit": `"a";r=50;t=7`}, none},
		"no time":                   {429, nil, none},
		"another status":            {500, map[string]string{"Retry-After": "7"}, none},
		"a response that is fine":   {200, map[string]string{"Retry-After": "7", "X-RateLimit-Reset": "7"}, none},
		"a word for a date":         {429, map[string]string{"X-RateLimit-Reset": "tomorrow"}, none},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := roundTripper(func(*http.Request) (*http.Response, error) {
					h := http.Header{}
					for field, text := range test.header {
						h.Set(field, fieldText(text))
					}
					return &http.Response{StatusCode: test.status, Header: h, Body: http.NoBody}, nil
				})
				l := turns("1/1ms")
				response, err := transport(httplimit.TransportConfig{Turns: l, Base: base}).RoundTrip(request(t, http.MethodGet, "http://x", nil))
				if err != nil || response.Body.Close() != nil || response.StatusCode != test.status {
					t.Fatal(response, err)
				}
				s := must(l.Inspect(t.Context(), here))
				if got := max(0, s.PausedUntil.Sub(s.At)); got != test.want {
					t.Errorf("%v: a pause of %v, want %v", test.header, got, test.want)
				}
			})
		})
	}
}

// fieldText replaces "date 7", "unix 7" or "milli 7" in text with the time 7 seconds from now, in
// that format.
func fieldText(text string) string {
	for form, format := range map[string]func(time.Time) string{
		"date ": func(at time.Time) string { return at.UTC().Format(http.TimeFormat) },
		"unix ": func(at time.Time) string { return strconv.FormatFloat(float64(at.UnixMilli())/1e3, 'f', -1, 64) },
		"milli ": func(at time.Time) string {
			return strconv.FormatInt(at.UnixMilli(), 10)
		},
	} {
		if len(text) > len(form) && text[:len(form)] == form {
			d := must(time.ParseDuration(text[len(form):] + "s"))
			return format(time.Now().Add(d))
		}
	}
	return text
}
