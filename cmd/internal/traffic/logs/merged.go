package logs

import (
	"net/netip"
)

// Options are the options of all logs that are read together. The zero Options detects the format of each.
type Options struct {
	Format         string // name of the format; "" detects it
	Columns        string // fields of CSV and JSON logs by attribute, such as time=TIMESTAMP,cost=ContextTokens; "" finds them by name
	TrustedProxies []netip.Prefix
}

// Merged merges logs by time.
type Merged struct {
	Logs  []*Log
	names hostNames
	at    *Log // log of the request that Next returned last
}

// OpenAll returns the merged logs of all sources.
func OpenAll(all []Source, o Options) (*Merged, error) {
	given, err := parseColumns(o.Columns)
	if err != nil {
		return nil, err
	}
	var fixed *format
	if o.Format != "" {
		if fixed, err = named(o.Format, given); err != nil {
			return nil, err
		}
	}
	m := &Merged{names: hostNames{}}
	for _, s := range all {
		l := &Log{
			Name: s.Name, format: fixed, given: given, names: m.names, proxies: newProxies(o.TrustedProxies),
			maxWaiting: max(1, Window/len(all)), maxSize: max(1, windowBytes/len(all)),
		}
		for _, c := range given {
			if c.attribute == attrCost {
				l.costField = c.field
			}
		}
		if err := l.start(s); err != nil {
			return nil, err
		}
		m.Logs = append(m.Logs, l)
	}
	return m, nil
}

// HostName returns the host name of a client whose synthetic address a prefix of at least 64 bits contains, or "".
func (m *Merged) HostName(p netip.Prefix) string {
	if p.Bits() < 64 {
		return ""
	}
	return m.names[p.Masked().Addr()]
}

// Next returns the next request, or nil at the end. It is valid until the next call.
func (m *Merged) Next() (*Entry, error) {
	if m.at != nil {
		m.at.drop()
		m.at = nil
	}
	var first *Entry
	for _, l := range m.Logs {
		e, err := l.peek()
		if err != nil {
			return nil, err
		}
		if e != nil && (first == nil || e.Micros < first.Micros) {
			first, m.at = e, l
		}
	}
	return first, nil
}

// Progress returns the number of bytes read of all logs, compressed as they are, and their total number, or 0 if it is
// unknown because a log is not a file.
func (m *Merged) Progress() (read, total int64) {
	for i, l := range m.Logs {
		read += l.count.n
		if l.count.size <= 0 {
			total = -1
		}
		if total >= 0 {
			total += m.Logs[i].count.size
		}
	}
	return read, max(total, 0)
}
