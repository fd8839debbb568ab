package keys

import "strings"

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 1 << 14

// Slot returns the hash slot of a key of this library, in which only the tag is in braces. The slot
// is derived from the CRC-16/XMODEM of the tag, as the Redis Cluster specification defines.
func Slot(key string) int {
	tag := key[strings.IndexByte(key, '{')+1 : strings.IndexByte(key, '}')]
	crc := uint16(0)
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc % Slots)
}

var crcTable = makeCRCTable()

func makeCRCTable() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}
