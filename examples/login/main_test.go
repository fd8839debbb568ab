package main

import (
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
