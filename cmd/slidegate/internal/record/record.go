// Package record tells over which windows a stored record counts. All else in it is for the scripts to read.
package record

import "time"

// Window are the Pers in a record of window.lua, whose head has the format. Of what is no such record they mean nothing.
func Window(record string) (pers []time.Duration) {
	for b := record[min(7, len(record)):]; len(b) >= 6; {
		per, length := section(b)
		pers, b = append(pers, milliseconds(per)), b[min(length, int64(len(b))):]
	}
	return pers
}

// section is the Per of the first section, and how many bytes the section has.
func section(b string) (per, length int64) {
	flags, closed, per, length := integer(b[:1]), integer(b[1:2]), integer(b[2:6]), int64(6)
	if flags&32 != 0 && len(b) >= 9 {
		closed, per, length = integer(b[1:3]), integer(b[3:9]), 9
	}
	if flags&16 != 0 { // a last time of its own
		length += 6
	}
	if flags>>2&3 == 2 { // its Resolution
		length += 6
	}
	units := [...]int64{0, 1, 3, 7}[flags&3]
	return per, length + 2*units + closed*(timeBytes(per)+units)
}

// timeBytes is how wide the time of a bucket is.
func timeBytes(per int64) int64 {
	for _, width := range []int64{2, 3, 4} {
		if per < 1<<(8*width) {
			return width
		}
	}
	return 6
}

// AR1 are the Pers in a record of ar1.lua, whose head has the format. Of what is no such record they mean nothing.
func AR1(record string) (pers []time.Duration) {
	for b := record[min(8, len(record)):]; len(b) >= 12; {
		per, length := integer(b[:4]), 12
		if per == 0 && len(b) >= 18 {
			per, length = integer(b[4:10]), 18
		}
		pers, b = append(pers, milliseconds(per)), b[length:]
	}
	return pers
}

// integer reads a number, big endian.
func integer(b string) (n int64) {
	for i := range len(b) {
		n = n<<8 + int64(b[i])
	}
	return n
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
