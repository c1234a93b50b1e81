// Package disktest gives tests small disks: to fill them, and to make them read-only. There are some on Linux.
package disktest
