package login

import "github.com/slidegate/slidegate/window"

// Limiter is the limiter of a budget.
func (g *Guard) Limiter(b Budget) *window.Limiter { return g.limiters[b] }
