//! Names of a program and what they stand for.

use crate::program::{Action, Field, Program, Table};
use std::collections::BTreeMap;

/// Place that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Number of the field of the metadata.
    Metadata(usize),
    /// Numbers of the header and of its field.
    Header(usize, usize),
}

/// Names of a program.
pub(crate) struct Names<'p> {
    pub(crate) program: &'p Program,
    places: BTreeMap<String, Place>,
    headers: BTreeMap<&'p str, usize>,
}

impl<'p> Names<'p> {
    pub(crate) fn new(program: &'p Program) -> Names<'p> {
        let metadata = program.metadata.iter().enumerate();
        let mut places: BTreeMap<String, Place> =
            metadata.map(|(at, field)| (format!("m.{}", field.name), Place::Metadata(at))).collect();
        for (number, header) in program.headers.iter().enumerate() {
            let fields = header.fields.iter().enumerate();
            places.extend(
                fields.map(|(at, f)| (format!("h.{}.{}", header.name, f.name), Place::Header(number, at))),
            );
        }
        let headers = program.headers.iter().enumerate().map(|(at, h)| (h.name.as_str(), at)).collect();
        Names { program, places, headers }
    }

    pub(crate) fn place(&self, word: &str) -> Option<Place> {
        self.places.get(word).copied()
    }

    /// Number of the header `h.NAME`.
    pub(crate) fn header(&self, word: &str) -> Option<usize> {
        self.headers.get(word.strip_prefix("h.")?).copied()
    }

    /// All fields of a header.
    pub(crate) fn fields(&self, header: usize) -> impl Iterator<Item = Place> + use<> {
        (0..self.program.headers[header].fields.len()).map(move |at| Place::Header(header, at))
    }

    pub(crate) fn field(&self, place: Place) -> &'p Field {
        match place {
            Place::Metadata(at) => &self.program.metadata[at],
            Place::Header(header, at) => &self.program.headers[header].fields[at],
        }
    }

    pub(crate) fn action(&self, name: &str) -> Option<(usize, &'p Action)> {
        self.program.actions.iter().enumerate().find(|(_, action)| action.name == name)
    }

    pub(crate) fn table(&self, name: &str) -> Option<(usize, &'p Table)> {
        self.program.tables.iter().enumerate().find(|(_, table)| table.name == name)
    }
}

/// Variable of a place.
pub(crate) fn variable(place: Place) -> String {
    match place {
        Place::Metadata(at) => format!("m{at}"),
        Place::Header(header, at) => format!("h{header}_{at}"),
    }
}
