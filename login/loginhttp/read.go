package loginhttp

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
)

const (
	maxBody  = 16 << 10 // bytes
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// read parses the fields of the body into r.PostForm. It ignores the query, whose format may be
// arbitrary. It returns nil, or the Result that rejects the request.
func (h *Handler) read(r *http.Request) *Result {
	if h.cfg.CrossOrigin.Check(r) != nil {
		return invalid(http.StatusForbidden, "The form came from another site. Open the login page, and try again.")
	}
	parse := map[string]func(string) (url.Values, error){formType: url.ParseQuery, jsonType: parseJSON}[mediaType(r)]
	if parse == nil {
		return invalid(http.StatusUnsupportedMediaType, "Send "+formType+" or "+jsonType+".")
	}
	var err error
	if len(r.PostForm) == 0 { // otherwise a middleware has already parsed the body
		var body []byte
		if body, err = io.ReadAll(r.Body); err == nil {
			r.PostForm, err = parse(string(body))
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return invalid(http.StatusRequestEntityTooLarge, "The form is too large.")
	case err != nil:
		return invalid(http.StatusBadRequest, "The form cannot be read.")
	}
	return nil
}

// mediaType returns the media type of the body, or "" if the request names no valid media type.
func mediaType(r *http.Request) string {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return media
}

// parseJSON returns the fields of a JSON object whose values are all strings.
func parseJSON(body string) (url.Values, error) {
	var fields map[string]string
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		return nil, err
	}
	values := url.Values{}
	for name, value := range fields {
		values.Set(name, value)
	}
	return values, nil
}
