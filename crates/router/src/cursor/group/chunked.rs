//! A list that grows without moving what it has.

/// Items of a full chunk.
const CHUNK: usize = 1024;

/// A list of small items: a growing `Vec` would hold twice its size for a moment, and more than it needs after that.
#[derive(Debug)]
pub(super) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

const fn place(index: u32) -> (usize, usize) {
    // u32 always fits into the usize of the platforms that this runs on.
    (index as usize / CHUNK, index as usize % CHUNK)
}

impl<T> Chunked<T> {
    pub(super) fn push(&mut self, item: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(item),
            _ => self.chunks.push(vec![item]),
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get(at)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let (chunk, at) = place(index);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }
}
