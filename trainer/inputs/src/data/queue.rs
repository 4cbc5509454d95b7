//! What is read ahead: a queue with as many tokens as are asked for, and no more.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Chunk, DataError, Summary};

/// What comes out of it, in order.
pub(super) enum Item {
    Chunk(Arc<Chunk>),
    /// All of a pass was before it.
    End(Summary),
    /// Nothing comes after it.
    Failed(DataError),
}

pub(super) struct Queue {
    most_tokens: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    tokens: usize,
    /// Nobody takes anything any more.
    closed: bool,
    /// Nobody puts anything any more.
    ended: bool,
}

impl Queue {
    pub fn new(most_tokens: usize) -> Self {
        Self { most_tokens, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, wait: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.lock(), wait).unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item as soon as there is room for it. False where nobody takes it.
    pub fn push(&self, item: Item) -> bool {
        let mut state = self.wait_while(|state| state.tokens >= self.most_tokens && !state.closed);
        if state.closed {
            return false;
        }
        state.tokens += tokens(&item);
        state.items.push_back(item);
        self.changed.notify_all();
        true
    }

    /// The next item, as soon as there is one.
    pub fn pop(&self) -> Item {
        let mut state = self.wait_while(|state| state.items.is_empty() && !state.ended);
        let item = state.items.pop_front().expect("whoever reads data says how it ended");
        state.tokens -= tokens(&item);
        self.changed.notify_all();
        item
    }

    /// Waits until it holds so many tokens, or is full, or holds the end of a pass, which is returned.
    ///
    /// # Errors
    /// What a failure in it says.
    pub fn filled(&self, tokens: usize) -> Result<Option<Summary>, DataError> {
        let is_end = |item: &Item| !matches!(item, Item::Chunk(_));
        let enough = tokens.min(self.most_tokens);
        let state =
            self.wait_while(|state| state.tokens < enough && !state.ended && !state.items.back().is_some_and(is_end));
        match state.items.iter().find(|item| is_end(item)) {
            Some(Item::End(summary)) => Ok(Some(*summary)),
            Some(Item::Failed(error)) => Err(error.clone()),
            Some(Item::Chunk(_)) | None => Ok(None),
        }
    }

    /// Nobody takes anything any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Nobody puts anything any more.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

fn tokens(item: &Item) -> usize {
    if let Item::Chunk(chunk) = item { chunk.tokens() } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_is_read_ahead_than_there_is_room_for() {
        let (queue, pushed) = (Arc::new(Queue::new(10)), Arc::new(AtomicUsize::new(0)));
        let thread = std::thread::spawn({
            let (queue, pushed) = (Arc::clone(&queue), Arc::clone(&pushed));
            move || {
                for id in 0..100 {
                    // Before it is there: whoever sees it in the queue sees it counted.
                    pushed.fetch_add(1, Ordering::SeqCst);
                    assert!(queue.push(Item::Chunk(Arc::new(Chunk::plain([id, id, id, id])))));
                }
                queue.push(Item::End(Summary::default()));
            }
        });
        assert!(queue.filled(10).unwrap().is_none());
        for taken in 0..100 {
            let Item::Chunk(chunk) = queue.pop() else { panic!("a chunk") };
            assert_eq!(chunk.ids[0], taken);
            // Three are 12 tokens, and a fourth may wait.
            assert!(pushed.load(Ordering::SeqCst) <= taken as usize + 1 + 4);
        }
        assert!(queue.filled(10).unwrap().is_some());
        assert!(matches!(queue.pop(), Item::End(_)));
        thread.join().unwrap();
    }

    #[test]
    fn who_reads_ahead_is_told_that_nobody_wants_it() {
        let queue = Arc::new(Queue::new(1));
        assert!(queue.push(Item::Chunk(Arc::new(Chunk::plain([1, 2])))));
        let thread = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.push(Item::Chunk(Arc::new(Chunk::plain([3, 4]))))
        });
        queue.close();
        assert!(!thread.join().unwrap());
    }
}
