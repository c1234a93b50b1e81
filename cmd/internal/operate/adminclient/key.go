package adminclient

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Key is whom a bucket counts for. It is an object whose fields are in order, as descriptors' entries are, and may have a
// name twice, as those may.
type Key []Entry

// MarshalJSON writes an object.
func (k Key) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, e := range k {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(e.Key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads an object of texts.
func (k *Key) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New("a key is no object")
	}
	*k = Key{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var e Entry
		if err := d.Decode(&e.Value); err != nil {
			return err
		}
		e.Key = name.(string)
		*k = append(*k, e)
	}
	return nil
}
