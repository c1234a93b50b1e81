package adminmsg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Entry is one of a descriptor's, or one part of a key.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

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
	const want = `key: write an object of texts, such as {"user": "ada"}`
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New(want)
	}
	*k = Key{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		value, err := d.Token()
		text, ok := value.(string)
		if err != nil || !ok {
			return fmt.Errorf("%s: the value of %q is no text", want, name)
		}
		*k = append(*k, Entry{name.(string), text})
	}
	return nil
}
