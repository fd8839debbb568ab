package httplimit

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/adapter"
)

// shadowReport is the minimum time between two log lines for the same kind of refusal in Shadow.
const shadowReport = time.Minute

// shadow counts the requests that would have been refused without Shadow, by the Detail of the
// problem.
type shadow struct {
	mu    sync.Mutex
	kinds map[string]refusals
}

// refusals counts one kind of refusal.
type refusals struct {
	requests int64     // since the last log line
	next     time.Time // the earliest time for the next log line
}

// log counts a request that would have been refused. At most once a minute, it logs how many such
// requests there were. It ignores outages, which are logged elsewhere.
func (s *shadow) log(log *slog.Logger, p adapter.Problem) {
	if p.Status == http.StatusServiceUnavailable {
		return
	}
	s.mu.Lock()
	k, now := s.kinds[p.Detail], time.Now()
	k.requests++
	n, isDue := k.requests, !now.Before(k.next)
	if isDue {
		k = refusals{next: now.Add(shadowReport)}
	}
	s.kinds[p.Detail] = k
	s.mu.Unlock()
	if isDue {
		log.Info("slidegate: shadow: requests passed that would have been refused",
			"requests", n, "status", p.Status, "last_detail", p.Detail, "last_limits", p.Violated)
	}
}
