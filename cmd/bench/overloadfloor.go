package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
)

// serveCrowdFloor implements each protocol as simply as possible, until the process ends.
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

// answerAlike sends a response of the same size as the check API.
func answerAlike(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"allowed":true,"limits":[{"rule":"bench/user","allowed":true,"limit":1000000,"remaining":999999,`+
		`"retry_after_ms":0,"reset_after_ms":1000000,"source":"store","shadow_denied":false}],"degraded":null,"reason":""}`)
}

// echoAlike replies to each command of six words.
func echoAlike(c net.Conn) {
	defer c.Close()
	in, out := make([]byte, 16<<10), make([]byte, 0, 16<<10)
	for rest := 0; ; {
		n, err := c.Read(in[rest:])
		if err != nil {
			return
		}
		// A command may arrive in parts: the incomplete rest is parsed again.
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

// endOfCommand returns where a command of six words, which is thirteen lines, ends, or -1.
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
