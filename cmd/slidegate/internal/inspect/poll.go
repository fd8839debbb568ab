package inspect

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
)

// overrideEvery is how old the override on the page can be. Limiters notice a change as late.
const overrideEvery = 5 * time.Second

// poll reads the state of an event for the page. Its calls follow each other.
type poll struct {
	*Subject
	client rueidis.Client
	given  flags.Limits
	now    func() time.Time

	override *overrideState // nil if the event has none
	read     time.Time      // when it was read; zero if it is to be read anew
	inForce  limiter        // under the limits of the override, or under those given
	known    bool           // there are such limits
}

// newPoll returns a function that reads the state of the event by one call of Redis each time. Every 5 s,
// another call reads its override.
func (s *Subject) newPoll(client rueidis.Client, given flags.Limits, now func() time.Time) (page.Poll, error) {
	p := &poll{Subject: s, client: client, given: given, now: now}
	return p.next, p.under(given)
}

// under makes the limiter under these limits. If there are none, it makes one that shows what Redis stores.
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
	st.Override = p.override
	st.overrule()
	if p.override != nil && !st.At.Before(p.override.Until) {
		p.read = time.Time{}
	}
	return newWebState(st), nil
}

// readOverride reads the override of the event.
func (p *poll) readOverride(ctx context.Context) error {
	override, limits, err := p.addOverride(ctx, p.client, p.given, p.now)
	if err == nil {
		err = p.under(limits)
	}
	if err == nil {
		p.override, p.read = override, time.Now()
	}
	return err
}

// webState is the state of an event as the page gets it.
type webState struct {
	*State
	OverrideText string `json:"override_text,omitempty"` // as it can be printed; empty if there is none
}

func newWebState(st *State) webState {
	if st.Override == nil {
		return webState{State: st}
	}
	return webState{st, st.Override.text(st.At)}
}
