//! The agent that measures the network from a node: UDP echoes to the targets
//! that the latency provider names, told on a stream of changes.
