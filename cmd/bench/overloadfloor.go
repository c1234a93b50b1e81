package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
)

// serveCrowdFloor speaks each protocol as simply as can be. It ends with the process.
func serveCrowdFloor(j job) error {
	failed := make(chan error)
	go func() { failed <- serveFloor(j.Floor) }()
	go func() { failed <- http.ListenAndServe(j.FloorHTTP, http.HandlerFunc(answerAlike)) }()
	go func() {
		l, err := net.Listen("tcp", j.FloorRESP)
		for err == nil {
			var c net.Conn
			if c, err = l.Accept(); err == nil {
				go echoAlike(c)
			}
		}
		failed <- err
	}()
	return <-failed
}

// answerAlike answers as much as the check API does.
func answerAlike(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"allowed":true,"limits":[{"rule":"bench/user","allowed":true,"limit":1000000,"remaining":999999,`+
		`"retry_after_ms":0,"reset_after_ms":1000000,"source":"store","shadow":false}],"degraded":null,"why":""}`)
}

// echoAlike answers each command of six words.
func echoAlike(c net.Conn) {
	defer c.Close()
	in, out := make([]byte, 16<<10), make([]byte, 0, 16<<10)
	for rest := 0; ; {
		n, err := c.Read(in[rest:])
		if err != nil {
			return
		}
		// A command may come in parts: what is behind the last begin is looked at again.
		have := in[:rest+n]
		out = out[:0]
		for {
			end := endOfCommand(have)
			if end < 0 {
				break
			}
			out = append(out, "*5\r\n:0\r\n:1000001\r\n:1000000\r\n:-1\r\n:1\r\n"...)
			have = have[end:]
		}
		rest = copy(in, have)
		if rest == len(in) {
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// endOfCommand is where a command of six words ends, or -1. It is thirteen lines.
func endOfCommand(b []byte) int {
	end := 0
	for range 13 {
		i := bytes.IndexByte(b[end:], '\n')
		if i < 0 {
			return -1
		}
		end += i + 1
	}
	return end
}
