package monitoring_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/look"
)

// TestPictureHasTheStyle checks that the picture of the dashboard has the colours of all pictures,
// and follows the reader's preference for light or dark. TestMonitoring draws it with -update.
func TestPictureHasTheStyle(t *testing.T) {
	kept, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(kept), look.Style()) || !strings.Contains(string(kept), look.Family) {
		t.Error("the style or the fonts are not those of other pictures")
	}
	var known []string
	for _, c := range look.All() {
		known = append(known, c.String())
	}
	_, drawn, _ := strings.Cut(string(kept), "</style>")
	for _, found := range regexp.MustCompile(`#[0-9A-Fa-f]{3,6}`).FindAllString(drawn, -1) {
		if !slices.Contains(known, found) {
			t.Errorf("%s is no colour of pictures", found)
		}
	}
}
