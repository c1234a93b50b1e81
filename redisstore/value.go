package redisstore

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// value is a reply, of whichever client. Its methods are those of rueidis' messages that the store uses.
type value struct {
	kind   valueKind
	text   string
	number int64
	list   []value
}

type valueKind uint8

const (
	isNil valueKind = iota
	isText
	isNumber
	isList
)

var errShape = errors.New("the reply has another shape")

func (v *value) IsNil() bool    { return v.kind == isNil }
func (v *value) IsString() bool { return v.kind == isText }

func (v *value) ToString() (string, error) {
	if v.kind != isText {
		return "", errShape
	}
	return v.text, nil
}

func (v *value) ToArray() ([]value, error) {
	if v.kind != isList {
		return nil, errShape
	}
	return v.list, nil
}

// AsInt64 is a number, also one that is written as text.
func (v *value) AsInt64() (int64, error) {
	switch v.kind {
	case isNumber:
		return v.number, nil
	case isText:
		return strconv.ParseInt(v.text, 10, 64)
	}
	return 0, errShape
}

func (v *value) AsIntSlice() ([]int64, error) {
	if v.kind != isList {
		return nil, errShape
	}
	numbers := make([]int64, len(v.list))
	for i := range v.list {
		var err error
		if numbers[i], err = v.list[i].AsInt64(); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// valueOf is a Commander's reply.
func valueOf(reply any) (value, error) {
	switch r := reply.(type) {
	case nil:
		return value{}, nil
	case string:
		return value{kind: isText, text: r}, nil
	case int64:
		return value{kind: isNumber, number: r}, nil
	case []any:
		v := value{kind: isList, list: make([]value, len(r))}
		for i := range r {
			var err error
			if v.list[i], err = valueOf(r[i]); err != nil {
				return value{}, err
			}
		}
		return v, nil
	}
	return value{}, fmt.Errorf("a Commander returned a %T: it must be nil, an int64, a string or a []any of those", reply)
}

func valueOfMessage(m *rueidis.RedisMessage) (v value, err error) {
	switch {
	case m.IsNil():
		return value{}, nil
	case m.IsString():
		v.kind = isText
		v.text, err = m.ToString()
	case m.IsInt64():
		v.kind = isNumber
		v.number, err = m.ToInt64()
	default:
		parts, err := m.ToArray()
		if err != nil {
			return value{}, err
		}
		v.kind, v.list = isList, make([]value, len(parts))
		for i := range parts {
			if v.list[i], err = valueOfMessage(&parts[i]); err != nil {
				return value{}, err
			}
		}
	}
	return v, err
}
