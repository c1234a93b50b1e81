package overload

// SetChance replaces the limiter's random source, so that a simulation is the same each time.
func (l *AdaptiveLimiter) SetChance(f func() float64) { l.chance = f }
