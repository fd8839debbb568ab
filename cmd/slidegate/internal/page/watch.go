package page

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	pollInterval = 500 * time.Millisecond // the minimum time between the starts of two polls of the same event
	pollTimeout  = 2 * time.Second        // for a single poll
	sendTimeout  = 10 * time.Second       // for sending a single update to a browser
	maxWatched   = 100                    // the maximum number of events watched at the same time
)

// hub holds the pollers of all events that are being watched. The zero value is ready to use.
type hub struct {
	mu      sync.Mutex
	pollers map[any]*poller // keyed by what is being watched
}

// poller polls one event for all browsers that are watching it.
type poller struct {
	poll     func(context.Context) []byte
	watchers map[chan []byte]bool
	last     []byte // the last update sent to the browsers
}

// serve streams the results of poll to a browser until the browser disconnects. All browsers that
// watch the same event share a poller. If maxWatched events are already being watched, serve sends
// an error, and the browser retries after a few seconds.
func (h *hub) serve(w http.ResponseWriter, r *http.Request, of any, poll func(context.Context) []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	updates, ok := h.join(of, poll)
	if !ok {
		_ = send(w, encoded(update{Error: fmt.Sprintf("%d events are already being watched; close another page first", maxWatched)}))
		return
	}
	defer h.leave(of, updates)
	for {
		select {
		case text := <-updates:
			if send(w, text) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// send writes one server-sent event.
func send(w http.ResponseWriter, text []byte) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(sendTimeout)) // some connections do not support deadlines
	if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
		return err
	}
	return c.Flush()
}

// join adds a watcher. It starts a poller if nobody else is watching the event.
func (h *hub) join(of any, poll func(context.Context) []byte) (updates chan []byte, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pollers[of]
	if p == nil && len(h.pollers) == maxWatched {
		return nil, false
	}
	updates = make(chan []byte, 1)
	if p == nil {
		p = &poller{poll: poll, watchers: map[chan []byte]bool{}}
		if h.pollers == nil {
			h.pollers = map[any]*poller{}
		}
		h.pollers[of] = p
		go h.run(of, p)
	} else if p.last != nil {
		updates <- p.last
	}
	p.watchers[updates] = true
	return updates, true
}

// leave removes a watcher. If it was the last, the poller continues until pollInterval has passed,
// so that browsers that keep reconnecting cannot make it poll more often.
func (h *hub) leave(of any, updates chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pollers[of].watchers, updates)
}

// run polls until nobody is watching. It does not use a ticker, because a ticker would start the
// next poll immediately after a slow one.
func (h *hub) run(of any, p *poller) {
	for !h.ended(of, p) {
		next := time.After(pollInterval)
		h.publish(p, p.pollOnce())
		<-next
	}
}

// pollOnce polls once.
func (p *poller) pollOnce() []byte {
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	return p.poll(ctx)
}

// ended removes the poller if nobody is watching, and reports whether it did so.
func (h *hub) ended(of any, p *poller) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p.watchers) > 0 {
		return false
	}
	delete(h.pollers, of)
	return true
}

// publish sends an update to all watchers. A slow watcher receives only the latest update.
func (h *hub) publish(p *poller, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.last = text
	for updates := range p.watchers {
		select {
		case <-updates:
		default:
		}
		updates <- text
	}
}
