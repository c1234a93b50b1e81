package adminmsg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Entry is an entry of a descriptor or a part of a key.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Key is the key of a bucket. In JSON it is an object whose fields are ordered and may repeat a name, because the entries
// of a descriptor are ordered and may.
type Key []Entry

// MarshalJSON implements json.Marshaler.
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

// UnmarshalJSON implements json.Unmarshaler. It returns an error unless b is an object whose values are strings.
func (k *Key) UnmarshalJSON(b []byte) error {
	const want = `write an object whose values are strings, such as {"user": "ada"}`
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
			return fmt.Errorf("%s: the value of %q is not a string", want, name)
		}
		*k = append(*k, Entry{name.(string), text})
	}
	return nil
}
