package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// deny counts a denial under 5/1h at a time.
func (o *topDenied) deny(event string, at time.Time) {
	o.add(event, window.Usage{Limit: window.PerHour(5), RetryAfter: time.Hour}, at)
}

// TestHeavyHittersAreKept checks streams of denials with far more events than are tracked. Each
// event with more than one in a thousand of the denials stays tracked, and the true count is
// between the bounds that are reported.
func TestHeavyHittersAreKept(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o, truth := newTopDenied(), map[string]int64{}
		skew := rand.NewZipf(rnd, 1.01+rnd.Float64()/2, 1, 20_000)
		const n = 50_000
		for range n {
			event := fmt.Sprint(skew.Uint64())
			truth[event]++
			o.deny(event, noon)
		}
		top, total, events := o.most()
		if total != n || events != maxTracked || len(o.events) != maxTracked || len(top) != maxReported {
			t.Fatalf("seed %d: %d denials, %d events, %d in the map, %d reported", seed, total, events, len(o.events), len(top))
		}
		for event, count := range truth {
			if e := o.events[event]; e == nil && count > n/maxTracked {
				t.Errorf("seed %d: %s with %d of %d denials is lost", seed, event, count, n)
			}
		}
		for event, e := range o.events {
			if e.event != event || e.denied < truth[event] || e.denied-e.unsure > truth[event] {
				t.Errorf("seed %d: %s has %d denials, %d of them unsure; it had %d", seed, event, e.denied, e.unsure, truth[event])
			}
		}
	}
}

// TestFewEventsAreExact checks that counts are exact while all events are tracked.
func TestFewEventsAreExact(t *testing.T) {
	o := newTopDenied()
	for i := range 300 {
		o.deny(fmt.Sprintf("client %d", i%30%7), noon.Add(time.Duration(i)*time.Second))
	}
	top, total, events := o.most()
	if total != 300 || events != 7 {
		t.Fatalf("%d denials of %d events", total, events)
	}
	for i, want := range []int64{50, 50, 40, 40, 40, 40, 40} {
		if top[i].denied != want || top[i].unsure != 0 || top[i].event != fmt.Sprint("client ", i) {
			t.Errorf("place %d: %+v, want %d denials", i, top[i], want)
		}
	}
}

// TestTimesOver checks that denials are compared to what the limit allows in the same time, and at
// least to what it allows at once.
func TestTimesOver(t *testing.T) {
	o := newTopDenied()
	for i := range 100 {
		o.deny("burst", noon.Add(time.Duration(i)*time.Millisecond))
	}
	for i := range 36_001 {
		o.deny("steady", noon.Add(time.Duration(i)*time.Second))
	}
	for event, want := range map[string]float64{"burst": 20, "steady": 720} {
		if got := o.events[event].times(); got < want || got > want*1.001 {
			t.Errorf("%s: %.2f times over 5/1h, want %.0f", event, got, want)
		}
	}
}

// TestStaleEventsAreDropped checks that events are dropped an hour after their last denial.
func TestStaleEventsAreDropped(t *testing.T) {
	o := newTopDenied()
	for i := range maxTracked {
		o.deny(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Second))
	}
	o.forget(noon.Add(denialTTL + 500*time.Second))
	if _, total, events := o.most(); events != maxTracked-500 || len(o.events) != maxTracked-500 || total != maxTracked {
		t.Errorf("%d events, %d in the map, %d denials", events, len(o.events), total)
	}
	o.deny("late", noon.Add(2*denialTTL)) // and there is room again
	if e := o.events["late"]; e.denied != 1 || e.unsure != 0 {
		t.Errorf("%+v", e)
	}
}

// TestCertainDenialsComeFirst checks that events with certain denials come before events whose
// denials may all belong to others.
func TestCertainDenialsComeFirst(t *testing.T) {
	o := newTopDenied()
	for i := range maxTracked {
		for range 3 {
			o.deny(fmt.Sprint("early ", i), noon)
		}
	}
	for i := range maxTracked / 2 {
		o.deny(fmt.Sprint("late ", i), noon)
	}
	if top, _, _ := o.most(); top[0].unsure != 0 || top[0].denied != 3 || !strings.HasPrefix(top[0].event, "early") {
		t.Errorf("%+v", top[0])
	}
	if late := o.events["late 1"]; late.denied != 4 || late.unsure != 3 || late.times() != 0.2 {
		t.Errorf("%+v is %v times over", late, late.times())
	}
}

// TestReportsDropStaleEvents checks that neither /over nor the log reports events that were last
// denied long ago.
func TestReportsDropStaleEvents(t *testing.T) {
	for _, report := range []func(i *instance){
		func(i *instance) { read(t, i.admin+"/over") },
		func(i *instance) { i.logDenials(0, time.Now()) },
	} {
		to, _ := startOrigin(t)
		i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "5/1h")}})
		i.topDenied.deny("somebody", noon)
		report(i)
		if _, total, events := i.topDenied.most(); total != 1 || events != 0 {
			t.Errorf("%d denials, %d events", total, events)
		}
	}
}

// TestPage checks that docs/proxy.md shows /over as the program prints it.
func TestPage(t *testing.T) {
	o := newTopDenied()
	for i := range 3600 {
		o.add("/ 198.51.100.7", window.Usage{Limit: window.PerHour(5), RetryAfter: time.Minute}, noon.Add(time.Duration(i)*time.Hour/3599))
	}
	for i := range 2 {
		o.add("POST /login 192.0.2.31", window.Usage{Limit: window.Every(5 * time.Second), RetryAfter: 3500 * time.Millisecond}, noon.Add(time.Hour+time.Duration(i-2)*time.Second))
	}
	page, err := os.ReadFile("../../../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	enc := json.NewEncoder(&shown)
	enc.SetIndent("", "  ")
	if err := enc.Encode(o.denials()); err != nil || !strings.Contains(string(page), "```json\n"+shown.String()+"```") {
		t.Errorf("the page does not show %v\n%s", err, &shown)
	}
}
