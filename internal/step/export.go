package step

// Drips are a bucket's times as the Redis script needs them: how long a unit of cost and a full bucket take to drip, in
// microseconds and fractions of one.
type Drips struct {
	Den          uint64 // what the fractions are of
	UnitQ, FillQ int64
	UnitR, FillR uint64
}

// Drips are the bucket's times.
func (p *Params) Drips() Drips {
	return Drips{Den: p.den, UnitQ: p.unitQ, UnitR: p.unitR, FillQ: p.fillQ, FillR: p.fillR}
}

// DripTime is how long a cost takes to drip, in microseconds and 1/[Drips.Den] microseconds.
func (p *Params) DripTime(cost int64) (q int64, r uint64) { return p.dripTime(cost) }

// SliceLength is how long a sub-window is.
func (p *Params) SliceLength() int64 { return p.slice }

// Grain is the resolution of a soft window's grace.
func (p *Params) Grain() int64 { return p.grain }

// Rounding is what is added to a sliding counter's estimate before it is cut, in 1/65,536.
func (p *Params) Rounding() int64 { return p.half() }

// WindowValue packs what a fixed window counted, and how many grains before its end its grace ends, as a state's value.
func WindowValue(count, grace int64) uint64 { return uint64(count) | uint64(grace)<<countBits }

// WindowOf unpacks the value of a fixed window's state.
func WindowOf(value uint64) (count, grace int64) {
	return int64(value & countMask), int64(value >> countBits)
}
