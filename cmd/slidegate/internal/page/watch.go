package page

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	pause       = 500 * time.Millisecond // at least, from the begin of one look at an event to the next
	lookTime    = 2 * time.Second        // for one look
	sendTime    = 10 * time.Second       // for a browser to take an update
	mostWatched = 100                    // events at once
)

// hub has a poller for each event that somebody watches. Its zero value has none.
type hub struct {
	mu      sync.Mutex
	pollers map[any]*poller // by what is watched
}

// poller looks at one event for all who watch it.
type poller struct {
	look     func(context.Context) []byte
	watchers map[chan []byte]bool
	last     []byte // what they got last
}

// serve sends what look returns to a browser until it leaves, and looks for all browsers that watch
// the same. If too much is watched, it says so, and the browser asks again after a few seconds.
func (h *hub) serve(w http.ResponseWriter, r *http.Request, of any, look func(context.Context) []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	updates, ok := h.join(of, look)
	if !ok {
		_ = send(w, encoded(update{Error: fmt.Sprintf("%d events are watched already; close another page first", mostWatched)}))
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
	_ = c.SetWriteDeadline(time.Now().Add(sendTime)) // not every connection has one
	if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
		return err
	}
	return c.Flush()
}

// join adds a watcher, and starts a poller if it is the first.
func (h *hub) join(of any, look func(context.Context) []byte) (updates chan []byte, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pollers[of]
	if p == nil && len(h.pollers) == mostWatched {
		return nil, false
	}
	updates = make(chan []byte, 1)
	if p == nil {
		p = &poller{look: look, watchers: map[chan []byte]bool{}}
		if h.pollers == nil {
			h.pollers = map[any]*poller{}
		}
		h.pollers[of] = p
		go h.poll(of, p)
	} else if p.last != nil {
		updates <- p.last
	}
	p.watchers[updates] = true
	return updates, true
}

// leave removes a watcher. Its poller ends after its pause if it was the last one, and not before:
// so no coming and going of browsers makes it look more often.
func (h *hub) leave(of any, updates chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pollers[of].watchers, updates)
}

// poll looks until nobody watches. It is no ticker's work, since two looks would follow each other at
// once after one that took long.
func (h *hub) poll(of any, p *poller) {
	for !h.ended(of, p) {
		next := time.After(pause)
		h.publish(p, p.once())
		<-next
	}
}

// once looks once.
func (p *poller) once() []byte {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	return p.look(ctx)
}

// ended removes a poller that nobody watches, and reports whether it did.
func (h *hub) ended(of any, p *poller) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p.watchers) > 0 {
		return false
	}
	delete(h.pollers, of)
	return true
}

// publish hands an update to all watchers. One that is slow misses those in between.
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
