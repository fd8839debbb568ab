package inspect

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
)

// overrideEvery is how old the override shown on the page can be. Limiters take as long to notice a
// change.
const overrideEvery = 5 * time.Second

// overrideTimeout is how long the page waits for the override.
const overrideTimeout = time.Second

// poll reads the state of an event for the page. Its methods are never called concurrently.
type poll struct {
	*Subject
	client rueidis.Client
	given  flags.Limits
	now    func() time.Time

	override *overrideState // nil if the event has none
	unread   error          // why the override could not be read
	read     time.Time      // when override was read; zero if it must be read again
	inForce  limiter        // the limiter under the override's limits or, without such limits, under the given ones
	known    bool           // whether inForce has limits
}

// newPoll returns a function that reads the state of the event. Each read calls Redis once, plus
// once more every 5 s to read the event's override.
func (s *Subject) newPoll(client rueidis.Client, given flags.Limits, now func() time.Time) (page.Poll, error) {
	p := &poll{Subject: s, client: client, given: given, now: now}
	return p.next, p.under(given)
}

// under sets inForce to a limiter with the given limits. If there are none, the limiter shows what
// Redis stores.
func (p *poll) under(limits flags.Limits) (err error) {
	if p.known = len(limits) > 0; !p.known {
		limits = placeholderLimits
	}
	p.inForce, err = p.limiter(p.client, limits, p.now)
	return err
}

// next reads the state.
func (p *poll) next(ctx context.Context) (any, error) {
	if time.Since(p.read) >= overrideEvery {
		if err := p.readOverride(ctx); err != nil {
			return nil, err
		}
	}
	st, err := p.pollState(ctx, p.inForce, p.known)
	if err != nil {
		return nil, err
	}
	st.setOverride(p.override, p.unread)
	if p.override != nil && !st.At.Before(p.override.Until) {
		p.read = time.Time{}
	}
	return webState{st, st.overrideText()}, nil
}

// readOverride reads the override of the event. It leaves time for reading the counts, because
// another shard of a cluster can hold these.
func (p *poll) readOverride(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, overrideTimeout)
	defer cancel()
	var limits flags.Limits
	p.override, limits, p.unread = p.addOverride(ctx, p.client, p.given, p.now)
	p.read = time.Now()
	return p.under(limits)
}

// webState represents the state of an event in the form sent to the page.
type webState struct {
	*State
	OverrideText string `json:"override_text,omitempty"` // as returned by overrideText
}
