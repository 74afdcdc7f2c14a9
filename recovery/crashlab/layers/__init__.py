"""The layers: six ways to crash a store, each a task that workers share."""
