//! Change of the plan of a running translator (decision 0060, docs/how-to/reload.md). The new rules hold at
//! once. State that they do not allow ends, in an order that the engine chooses and reports; nothing else
//! ends.

use super::Model;
use super::bib::Binding;
use super::ends::{End4, End6};
use super::events::GaugeStates;
use super::rules::{self, Kind, Rules};
use gatun_nat::plan::StaticBinding;
use gatun_nat::{EventKind, Plan};
use std::collections::VecDeque;
use std::rc::Rc;

/// A static binding with its instance.
type Fixed = (usize, StaticBinding);

/// Remaining work of a change.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    /// Static bindings that end, in their order.
    gone: Vec<Fixed>,
    /// Static bindings that begin when all else is done, in their order: each takes its port and block before
    /// the state in the way of the next one ends.
    new: VecDeque<Fixed>,
    /// True if the change removes hosts, or exempts further destinations.
    judges: bool,
    /// Numbers of ended sessions, and of blocks taken from their owners.
    ended: (u64, u64),
}

fn fixed_of(rules: &[Rules]) -> Vec<Fixed> {
    let each = |(n, r): (usize, &Rules)| r.static_bindings.iter().map(move |b| (n, *b)).collect::<Vec<_>>();
    let mut all: Vec<Fixed> = rules.iter().enumerate().flat_map(each).collect();
    all.sort_by_key(|(n, b)| (*n, b.transport as usize, b.inside, b.outside));
    all
}

fn judges(old: &Plan, new: &Plan) -> bool {
    let six = old.nat64.iter().zip(&new.nat64).any(|(a, b)| a.sources != b.sources || a.pool6 != b.pool6);
    six || old.nat44.iter().zip(&new.nat44).any(|(a, b)| a.inside != b.inside || a.exempt != b.exempt)
}

fn is(b: &Binding, (instance, fixed): &Fixed) -> bool {
    b.fixed
        && (b.instance, b.transport) == (*instance, fixed.transport as usize)
        && (b.inside, b.outside) == (fixed.inside, fixed.outside)
}

impl Model {
    /// Applies another plan, as the engine has. Tables, instances and their prefixes stay.
    pub fn reload(&mut self, new: &Plan) {
        let (old, before) = (self.plan.clone(), fixed_of(&self.rules));
        self.plan = Rc::new(new.clone());
        self.rules = Rc::new(rules::all(new));
        let after = fixed_of(&self.rules);
        self.error_tokens = self.error_tokens.min(u64::from(new.icmp.burst) * 1000);
        // Choice: thresholds are reported anew.
        self.high = GaugeStates::none(new.pools.len());
        for pool in 0..new.pools.len() {
            self.pools[pool].change_terms(&old.pools[pool], &new.pools[pool], &self.rules, pool);
            self.pools[pool].blocks.change(&new.pools[pool]);
        }
        for at in 0..self.subscribers.len() {
            let (owner, paired) = (self.subscribers[at].owner, self.subscribers[at].paired);
            let pool = self.rules[owner.0].pool;
            self.subscribers[at].paired = paired.filter(|&a| self.pool_of(a) == Some(pool));
        }
        self.settling = Some(Settling {
            gone: before.iter().filter(|b| !after.contains(b)).copied().collect(),
            new: after.iter().filter(|b| !before.contains(b)).copied().collect(),
            judges: judges(&old, new),
            ended: (0, 0),
        });
        self.coverage.mark("a plan changes");
        self.bar_blocks();
        self.settle_change();
    }

    /// Follows the engine's events of state that ends by the change, as far as they are known.
    pub(super) fn settle_change(&mut self) {
        if self.settling.is_none() {
            return;
        }
        while let Some(gone) = self.settling.as_ref().and_then(|s| s.gone.first().copied()) {
            if !self.end_static_binding(&gone) {
                return;
            }
            self.settling.iter_mut().for_each(|s| s.gone.retain(|other| *other != gone));
        }
        loop {
            if let Some((pool, n)) = self.told_eviction() {
                self.evict(pool, n);
            } else if let Some((b, s)) = self.told_end()
                && self.has_to_go(b, s)
            {
                self.end_by_change((b, s));
            } else if self.is_left_over().is_some() {
                return;
            } else if !self.begin_static_binding() {
                break;
            }
        }
        self.finish_change();
    }

    /// Ends a static binding, after its sessions; returns false if sessions are left.
    fn end_static_binding(&mut self, gone: &Fixed) -> bool {
        let Some(b) = self.bindings.iter().position(|b| is(b, gone)) else { return true };
        while !self.bindings[b].sessions.is_empty() {
            let Some(end) = self.told_end().filter(|end| end.0 == b) else { return false };
            self.end_by_change(end);
        }
        let binding = self.bindings.remove(b);
        self.port_is_back((binding.instance, 0), &binding);
        self.bar_blocks();
        true
    }

    /// The session that the engine reports as ended next.
    fn told_end(&self) -> Option<(usize, usize)> {
        let (transport, outside, remote) = self.next_ended()?;
        let b = self.binding_outside(transport, outside)?;
        let s = self.bindings[b].sessions.iter().position(|s| s.remote == remote)?;
        Some((b, s))
    }

    fn end_by_change(&mut self, (b, s): (usize, usize)) {
        self.coverage.mark("a session ends by a change");
        if let Some(settling) = &mut self.settling {
            settling.ended.0 += 1;
        }
        self.close(b, s);
    }

    /// The unused block that the engine reports as taken away next.
    fn told_eviction(&self) -> Option<(usize, usize)> {
        let told = self.events.front().filter(|e| e.kind == EventKind::BlockReleased)?;
        let transport = told.transports.iter().position(|&on| on).unwrap_or(0);
        let n = self.block_at(told.pool, transport, told.outside)?;
        (self.is_unused(told.pool, n) && self.block_has_to_go(told.pool, n)).then_some((told.pool, n))
    }

    fn evict(&mut self, pool: usize, n: usize) {
        self.coverage.mark("a block is taken away by a change");
        if let Some(settling) = &mut self.settling {
            settling.ended.1 += 1;
        }
        self.take_block_away(pool, n);
    }

    /// Returns true if the owner must lose a block: it no longer exists, or the next static binding gets it.
    fn block_has_to_go(&self, pool: usize, n: usize) -> bool {
        let next = self.settling.as_ref().and_then(|s| s.new.front());
        let next = next.filter(|(instance, _)| self.rules[*instance].pool == pool);
        self.is_leaving(pool, n)
            || next.is_some_and(|(_, b)| self.block_at(pool, b.transport as usize, b.outside) == Some(n))
    }

    /// Returns true if the new rules do not allow a session, or it is in the way of the next static binding.
    fn has_to_go(&self, b: usize, s: usize) -> bool {
        let Some(settling) = &self.settling else { return false };
        let (binding, session) = (&self.bindings[b], &self.bindings[b].sessions[s]);
        let pool = self.rules[binding.instance].pool;
        let judged = settling.judges && {
            // All sessions of a binding end, so that none is opened through it again; of a shared port, only
            // the flow.
            let inside = if binding.shared.is_some() { session.inside } else { binding.inside };
            !self.is_served(binding.instance, inside) || self.is_exempt_now(binding, session.remote)
        };
        let in_the_way = settling.new.front().is_some_and(|(instance, new)| {
            let same_pool = self.rules[*instance].pool == pool;
            let block = |t: usize, outside: End4| self.block_at(pool, t, outside).filter(|_| same_pool);
            let same_transport = binding.transport == new.transport as usize;
            let same_inside = binding.shared.is_none()
                && (binding.instance, binding.inside) == (*instance, new.inside)
                && same_transport;
            let new_block = block(new.transport as usize, new.outside);
            let same_block = block(binding.transport, binding.outside)
                .is_some_and(|n| Some(n) == new_block && self.is_owned(pool, n));
            same_inside
                || (same_transport && binding.outside == new.outside)
                || (!binding.fixed && same_block)
        });
        let may_stay = binding.fixed || self.port_may_stay(pool, binding);
        !may_stay || judged || in_the_way
    }

    fn is_served(&self, instance: usize, inside: End6) -> bool {
        match self.kind(instance) {
            Kind::Six => self.accepts(instance, inside.0).is_ok(),
            Kind::Four => inside.0.to_ipv4_mapped().is_some_and(|a| self.serves44(instance, a)),
        }
    }

    fn is_exempt_now(&self, binding: &Binding, remote: End4) -> bool {
        let proto = [6, 17, 1][binding.transport];
        let port = (proto != 1).then_some(remote.1);
        self.kind(binding.instance) == Kind::Four && self.is_exempt(binding.instance, remote.0, proto, port)
    }

    fn port_may_stay(&self, pool: usize, b: &Binding) -> bool {
        match self.gives_blocks(pool) {
            true => self.block_at(pool, b.transport, b.outside).is_some_and(|n| !self.is_leaving(pool, n)),
            false => self.pool_has(pool, b.transport, b.outside.0, b.outside.1),
        }
    }

    /// State that should have ended by the last change and has not.
    fn is_left_over(&self) -> Option<String> {
        for (b, binding) in self.bindings.iter().enumerate() {
            if let Some(s) = (0..binding.sessions.len()).find(|&s| self.has_to_go(b, s)) {
                return Some(format!("{:?} of {binding:?}", binding.sessions[s]));
            }
        }
        for pool in 0..self.pools.len() {
            let mut all = self.owned_blocks(pool).filter(|&n| self.block_has_to_go(pool, n));
            if let Some(n) = all.next() {
                return Some(format!("block {n} of pool {pool}"));
            }
        }
        None
    }

    /// Adds the next new static binding, after all in its way has ended. Returns false if there is none.
    fn begin_static_binding(&mut self) -> bool {
        self.forget_old_rules();
        let Some((instance, b)) = self.settling.as_mut().and_then(|s| s.new.pop_front()) else {
            return false;
        };
        self.coverage.mark("a static binding begins");
        self.add_static_binding(instance, &b);
        true
    }

    /// Removes what was left of the old rules.
    fn forget_old_rules(&mut self) {
        for pool in 0..self.pools.len() {
            self.pools[pool].blocks.forget_leaving();
            let ranges = &self.plan.pools[pool].ranges;
            self.pools[pool].forget_left(|a| ranges.iter().any(|r| r.first <= a && a <= r.last));
        }
    }

    fn finish_change(&mut self) {
        if let Some(settling) = self.settling.take() {
            self.settled = settling.ended;
        }
    }

    /// Numbers of sessions and blocks that the last change has ended.
    ///
    /// # Errors
    /// Returns the state that should have ended and has not.
    pub fn has_settled(&self) -> Result<(u64, u64), String> {
        match &self.settling {
            Some(left) => {
                let what = self.is_left_over().unwrap_or_else(|| format!("{:?}", left.gone));
                Err(format!("not ended by the change: {what}"))
            }
            None => Ok(self.settled),
        }
    }
}
