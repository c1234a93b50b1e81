// Package queue implements the durable queue: it stores requests that are over a limit and delivers them later, at least once.
//
// Items are stored in three JetStream streams, of an embedded server or of an external cluster:
//
//	NAME-items    one message per request that is not done: PREFIX.item.ID. The order of the messages is the order of the items.
//	NAME-states   state of each item: PREFIX.state.ID, one message each, written by compare-and-swap. A gateway claims an item
//	              by writing its state before the delivery, so that neither two deliveries nor a delivery and a cancellation
//	              overlap. No message: no attempt was made.
//	NAME-results  results of items that are done, with a TTL: PREFIX.result.ID
//
// A request is done when its result is written; then the item is removed, then its state. After a crash between these steps, the
// next instance that finds the item completes them: an item with a result is not delivered again.
//
// Each instance consumes the first two streams and indexes all items without their content. Items of one rule and key form a
// subqueue: limits are checked only for its first item.
package queue
