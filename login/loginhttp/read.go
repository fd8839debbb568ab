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

// read parses the body into r.PostForm. It returns nil, or the Result that refuses the request.
func (h *Handler) read(r *http.Request) *Result {
	if h.cfg.CrossOrigin.Check(r) != nil {
		return invalid(http.StatusForbidden, "The form came from another site. Open the login page, and try again.")
	}
	parse := map[string]func(*http.Request) error{formType: (*http.Request).ParseForm, jsonType: parseJSON}[mediaType(r)]
	if parse == nil {
		return invalid(http.StatusUnsupportedMediaType, "Send "+formType+" or "+jsonType+".")
	}
	err := parse(r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return invalid(http.StatusRequestEntityTooLarge, "The form is too large.")
	case err != nil:
		return invalid(http.StatusBadRequest, "The form cannot be read.")
	}
	return nil
}

func mediaType(r *http.Request) string {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // "" if there is none
	return media
}

// parseJSON reads an object of strings into r.PostForm, so that all fields are read in one way.
func parseJSON(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var fields map[string]string
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	r.PostForm = url.Values{}
	for name, value := range fields {
		r.PostForm.Set(name, value)
	}
	return nil
}
