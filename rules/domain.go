package rules

// Domain is a tree of descriptors as Envoy's rate limit service reads it from a file.
type Domain struct {
	Pos         Position
	Name        string
	Descriptors []DescriptorRule
}

// DescriptorRule is one node of a domain's tree.
type DescriptorRule struct {
	Pos         Position
	Key         string
	Value       string // may hold *, any number of times; empty: any value
	Descriptors []DescriptorRule

	// Limits are what applies to a descriptor that ends here. The reference has one at most; with several all of them
	// must allow. Without any, and without Unlimited, the descriptor is not limited.
	Limits    []Limit
	Unlimited bool
	Name      string   // returned with the limit; what Replaces of others refers to
	Replaces  []string // names of limits that do not count for a request in which this one matches

	Shadow         bool
	Quota          bool
	DetailedMetric bool
	ValueToMetric  bool
	ShareThreshold bool
	Metadata       map[string]any
}

// Entry is one entry of a descriptor.
type Entry struct{ Key, Value string }
