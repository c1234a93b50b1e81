// Package queue keeps requests that came too fast and hands them out to be delivered later, at least once.
//
// They are in three JetStream streams, of a server in this process or of a cluster outside:
//
//	NAME-items    one message for each request that is not done: PREFIX.item.ID. Its place is its order.
//	NAME-states   what became of them so far: PREFIX.state.ID, one message each, written only over the one that was read.
//	              Who delivers has written so first: that is what keeps two gateways, or a gateway and who cancels, apart.
//	              None: nothing was tried yet.
//	NAME-results  what came of those that are done, for a while: PREFIX.result.ID
//
// A request is done when its result is written; then the item is removed, then its state. Whatever a crash leaves between
// those steps is put right by who finds it: an item with a result is not delivered again.
//
// Each process follows the first two streams and knows all items, without their content. Items of one rule and key are a
// subqueue: only the first of a subqueue asks whether there is room.
package queue
