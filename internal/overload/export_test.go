package overload

// SetChance has the gate draw by the function, so that a simulation is the same each time.
func (g *Gate) SetChance(f func() float64) { g.chance = f }
