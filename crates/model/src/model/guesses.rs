//! Answers to what cannot be known yet: tried in turn, like a path through a maze.

/// The answers given so far on one attempt, each with how many there are to choose from.
#[derive(Clone, Debug, Default)]
pub(super) struct Guesses {
    given: Vec<(usize, usize)>,
    asked: usize,
}

impl Guesses {
    /// One of `n` answers: the first at first, others on later attempts.
    pub(super) fn choose(&mut self, n: usize) -> usize {
        let at = self.asked;
        self.asked += 1;
        match self.given.get(at) {
            Some(&(answer, _)) => answer,
            None => {
                self.given.push((0, n));
                0
            }
        }
    }

    /// Yes or no: yes at first.
    pub(super) fn yes(&mut self) -> bool {
        self.choose(2) == 0
    }

    /// Goes on to the next attempt; `false` where all have been made.
    pub(super) fn next(&mut self) -> bool {
        self.given.truncate(self.asked);
        self.asked = 0;
        while let Some((answer, n)) = self.given.pop() {
            if answer + 1 < n {
                self.given.push((answer + 1, n));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_tried_once() {
        let mut guesses = Guesses::default();
        let mut seen = Vec::new();
        loop {
            let a = guesses.choose(3);
            // A question that is asked only sometimes.
            let b = if a == 1 { guesses.choose(2) } else { 9 };
            seen.push((a, b));
            if !guesses.next() {
                break;
            }
        }
        assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (2, 9)]);
    }
}
