"""The layers: six ways to crash a store. Each is a task that workers share."""
