//! Tables other than those of flows, counters of the program and of stateless instances, and the limit of
//! packets to the controller.

use super::{ProgramAnswer, Reason, Session, count, of_counter, of_table, send, table_entry, within, write};
use crate::connection::Ends;
use crate::connection::static_entries::{self, Entries};
use crate::link::{Event, ProgramCounts, WriteError};
use gatun_nat::counters::Count;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{Entity, MeterEntry, TableEntry, Update, entity};
use std::sync::Arc;

impl Session {
    /// Reads the entries of the other tables.
    pub(super) async fn read_entries(&mut self) -> Result<(), Reason> {
        let tables = static_entries::tables(&self.program).map_err(|error| error.to_string())?;
        let all =
            tables.into_iter().map(|table_id| of_table(TableEntry { table_id, ..TableEntry::default() }));
        let mut answer = self.primary.read(all.collect()).await?;
        while let Some(part) = within(self.primary.timeout, "read of a table", answer.message()).await? {
            let entries = part.entities.iter().filter_map(table_entry);
            let entries = entries.filter(|entry| !entry.is_default_action);
            self.entries.extend(entries.cloned().map(static_entries::plain));
        }
        Ok(())
    }

    /// Writes the difference of the other tables. A switch that refuses an entry of a stateless instance gets
    /// none of them.
    pub(super) async fn write_entries(&mut self, ends: &mut Ends) -> Result<(), Reason> {
        let (number, wanted) = ends.entries.borrow_and_update().clone();
        let mut wants = static_entries::encode(&self.program, &wanted).map_err(|error| error.to_string())?;
        // Counters begin where they are before the first packet.
        let unknown = ends.counts.unknown(&static_entries::counters(&wanted));
        self.count_stateless(ends, unknown).await?;
        let mut refusal = self.change_entries(&wants).await?;
        if refusal.is_some() {
            let stateless = static_entries::stateless_tables(&self.program);
            wants.retain(|(table, _), _| !stateless.contains(table));
            self.entries.clear();
            self.read_entries().await?;
            let again = self.change_entries(&wants).await?;
            again.map_or(Ok(()), |reason| Err(format!("an entry cannot be deleted: {reason}")))?;
        } else if wanted.iter().any(static_entries::is_stateless)
            && static_entries::stateless_tables(&self.program).is_empty()
        {
            refusal = Some("its program has no tables for them".to_owned());
        }
        // Packets of removed entries.
        let known = ends.counts.known();
        self.count_stateless(ends, known).await?;
        self.entries = wants;
        ends.report.send_modify(|report| (report.written, report.refusal) = (number, refusal));
        Ok(())
    }

    /// Writes a difference. Returns the reason if the switch refuses an entry of a stateless instance.
    async fn change_entries(&mut self, wants: &Entries) -> Result<Option<Reason>, Reason> {
        let stateless = static_entries::stateless_tables(&self.program);
        let sizes = static_entries::sizes(&self.program);
        let parts = static_entries::difference(&self.entries, wants, &sizes);
        let mut refusal = None;
        for part in parts.iter().flat_map(|part| part.chunks(static_entries::CHANGES_MAX)) {
            let (client, request) = (self.primary.client.clone(), self.primary.write_request(part.to_vec()));
            let results = write(client, request, self.primary.timeout).await?;
            let failed = part.iter().zip(results).filter_map(|(of, result)| Some((of, result.err()?)));
            for (of, error) in failed {
                let table = of.entity.as_ref().and_then(table_entry).map_or(0, |entry| entry.table_id);
                if !stateless.contains(&table) {
                    return Err(format!("an interface, a route or a next hop was refused: {error:?}"));
                }
                refusal.get_or_insert_with(|| match error {
                    WriteError::Full => "its tables have no room for them".to_owned(),
                    error => format!("an entry was refused: {error:?}"),
                });
            }
        }
        Ok(refusal)
    }

    /// Reads counters of stateless instances.
    async fn count_stateless(&mut self, ends: &mut Ends, numbers: Vec<u32>) -> Result<(), Reason> {
        if numbers.is_empty() {
            return Ok(());
        }
        let entries = self.program.stateless_counters(numbers.into_iter());
        let request = self.primary.read_request(entries.into_iter().map(of_counter).collect());
        let answer = count(self.primary.client.clone(), request, self.primary.timeout).await?;
        take_stateless(ends, answer.iter().filter_map(|entry| self.program.stateless_counted(entry)));
        Ok(())
    }

    /// Limits the packets that the switch gives to its controller for each reason. `limit`: packets per
    /// second.
    pub(super) async fn limit_controller(&mut self, limit: Option<u32>) -> Result<(), Reason> {
        let update = |entry: MeterEntry| Update {
            r#type: Type::Modify.into(),
            entity: Some(Entity { entity: Some(entity::Entity::MeterEntry(entry)) }),
        };
        let updates: Vec<Update> = self.program.controller_limits(limit).into_iter().map(update).collect();
        if updates.is_empty() {
            return Ok(());
        }
        let (client, request) = (self.primary.client.clone(), self.primary.write_request(updates));
        let results = write(client, request, self.primary.timeout).await?;
        match results.into_iter().find_map(Result::err) {
            Some(error) => Err(format!("the limit of packets to the controller was refused: {error:?}")),
            None => Ok(()),
        }
    }

    pub(super) fn count_program(&self, stateless: Vec<u32>) -> ProgramAnswer {
        let (client, program) = (self.primary.client.clone(), Arc::clone(&self.program));
        let stateless = program.stateless_counters(stateless.into_iter());
        let entries = program.own_counters().chain(stateless).map(of_counter);
        let request = self.primary.read_request(entries.collect());
        let answer = count(client, request, self.primary.timeout);
        Box::pin(async move {
            let (mut counts, answer) = (ProgramCounts::default(), answer.await?);
            answer.iter().for_each(|entry| program.own_counted(entry, &mut counts));
            Ok((counts, answer.iter().filter_map(|entry| program.stateless_counted(entry)).collect()))
        })
    }
}

pub(super) async fn program_counted(
    answer: Result<(ProgramCounts, Vec<(u32, Count)>), Reason>,
    ends: &mut Ends,
) -> Result<(), Reason> {
    let (counts, stateless) = answer?;
    take_stateless(ends, stateless.into_iter());
    send(ends, Event::ProgramCounted(counts)).await
}

fn take_stateless(ends: &mut Ends, counted: impl Iterator<Item = (u32, Count)>) {
    ends.counts.take(counted);
    ends.report.send_modify(|report| report.counts = ends.counts.grown().to_vec());
}
