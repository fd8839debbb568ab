package main

import (
	"slices"

	"github.com/redis/rueidis"
)

// rate is the name of the row that the others are ratios of.
const rate = "redis_rate"

// contenders are the rows of the table, in its order.
func contenders(client rueidis.Client) []contender {
	return slices.Concat(redisRate(client), windows(client), levels(client), floors(client))
}
