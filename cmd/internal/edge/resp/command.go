package resp

import (
	"fmt"
	"strconv"
	"strings"
)

// execute executes one command.
func (c *conn) execute(args [][]byte) {
	name := args[0]
	if c.authenticated && is(name, "cl.throttle") {
		c.throttle(args)
		return
	}
	c.finishBatch() // replies must be in the order of the commands
	errors := c.counts.Errors
	c.executeOther(name, args)
	if c.counts.Errors == errors {
		c.counts.Other++
	}
}

func (c *conn) executeOther(name []byte, args [][]byte) {
	switch { // commands without authentication
	case is(name, "auth"):
		c.commandAuth(args)
		return
	case is(name, "hello"):
		c.commandHello(args)
		return
	case is(name, "quit"):
		c.simple("OK")
		c.last = true
		return
	case is(name, "reset"):
		c.proto, c.authenticated = 2, c.server.password == nil
		c.simple("RESET")
		return
	case !c.authenticated:
		c.fail("NOAUTH Authentication required.")
		return
	}
	switch {
	case is(name, "ping") && len(args) <= 2:
		if len(args) == 2 {
			c.bulk(args[1])
		} else {
			c.simple("PONG")
		}
	case is(name, "echo") && len(args) == 2:
		c.bulk(args[1])
	case is(name, "select") && len(args) == 2:
		if string(args[1]) == "0" {
			c.simple("OK")
		} else {
			c.fail("ERR DB index is out of range: the only database is 0")
		}
	case is(name, "client") && len(args) >= 2:
		c.commandClient(args)
	case is(name, "command"):
		c.commandCommand(args)
	case is(name, "ping"), is(name, "echo"), is(name, "select"), is(name, "client"):
		c.fail(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(string(name))))
	default:
		c.fail(fmt.Sprintf("ERR unknown command %.40q: the commands are %s", name, names))
	}
}

const (
	names    = "CL.THROTTLE, PING, ECHO, AUTH, HELLO, SELECT, CLIENT, COMMAND, RESET and QUIT"
	commands = 10
)

// commandClient handles CLIENT. It accepts the name and library of the client without storing them.
func (c *conn) commandClient(args [][]byte) {
	switch sub := args[1]; {
	case is(sub, "setname") && len(args) == 3, is(sub, "setinfo") && len(args) == 4:
		c.simple("OK")
	case is(sub, "id") && len(args) == 2:
		c.out = append(strconv.AppendInt(append(c.out, ':'), c.id, 10), "\r\n"...)
	case is(sub, "setname"), is(sub, "setinfo"), is(sub, "id"):
		c.fail(fmt.Sprintf("ERR wrong number of arguments for 'client|%s' command", strings.ToLower(string(sub))))
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand %.40q of CLIENT: the subcommands are SETNAME, SETINFO and ID", sub))
	}
}

// commandCommand handles COMMAND, which clients use for completion. It returns no commands.
func (c *conn) commandCommand(args [][]byte) {
	switch {
	case len(args) == 1:
		c.out = append(c.out, "*0\r\n"...)
	case is(args[1], "count") && len(args) == 2:
		c.out = append(strconv.AppendInt(append(c.out, ':'), commands, 10), "\r\n"...)
	case is(args[1], "docs"):
		c.out = append(c.out, c.mapOf(0)...)
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand %.40q of COMMAND: the subcommands are COUNT and DOCS", args[1]))
	}
}

// commandHello handles HELLO [2|3] [AUTH user password] [SETNAME name].
func (c *conn) commandHello(args [][]byte) {
	proto := c.proto
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			proto = 2
		case "3":
			proto = 3
		default:
			if _, ok := integer(args[1]); !ok {
				c.fail("ERR Protocol version is not an integer or out of range")
			} else {
				c.fail("NOPROTO unsupported protocol version")
			}
			return
		}
	}
	for i := 2; i < len(args); {
		switch left := len(args) - i; {
		case is(args[i], "auth") && left >= 3:
			if fault := c.authenticate(args[i+1], args[i+2]); fault != "" {
				c.fail(fault)
				return
			}
			i += 3
		case is(args[i], "setname") && left >= 2:
			i += 2
		default:
			c.fail(fmt.Sprintf("ERR Syntax error in HELLO option %.40q", args[i]))
			return
		}
	}
	if !c.authenticated {
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> " +
			"option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.proto = proto
	b := append(c.out, c.mapOf(7)...)
	// The version of Redis whose protocol this is, because clients choose their commands by it.
	b = fmt.Appendf(b, "$6\r\nserver\r\n$6\r\nsluice\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:%d\r\n$2\r\nid\r\n:%d\r\n", proto, c.id)
	c.out = append(b, "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"...)
}

// mapOf returns the header of a map with n fields: in RESP2, which has no maps, of an array with 2n elements.
func (c *conn) mapOf(n int) string {
	if c.proto == 3 {
		return "%" + strconv.Itoa(n) + "\r\n"
	}
	return "*" + strconv.Itoa(2*n) + "\r\n"
}

func (c *conn) simple(text string) { c.out = append(append(append(c.out, '+'), text...), "\r\n"...) }

func (c *conn) bulk(b []byte) {
	c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(b)), 10), "\r\n"...)
	c.out = append(append(c.out, b...), "\r\n"...)
}

// fail appends an error reply. Control characters are replaced, because they could end the line.
func (c *conn) fail(text string) {
	c.counts.Errors++
	c.finishBatch()
	c.out = append(c.out, '-')
	for i := range len(text) {
		b := text[i]
		if b < ' ' {
			b = ' '
		}
		c.out = append(c.out, b)
	}
	c.out = append(c.out, "\r\n"...)
}
