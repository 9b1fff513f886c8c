/** What the page's scripts hand to one another; times are nanoseconds since the run's first operation. */

type Kind = "compute" | "comm" | "copy" | "unknown";
type Fill = string | CanvasPattern;
/** How a table's numbers are read: its rows, and whether each column needs more than 32 bits. */
interface TableEntry {
  count: number;
  columns: Record<string, boolean>;
}
/** Reads the next table: its `count`, and its columns by name. */
type TableReader = (entry: TableEntry) => any;
type Numbers = Float64Array | Uint32Array;

/** The words of vocabulary.py. */
interface Vocabulary {
  kinds: Record<string, { label: string; short: string; one: string }>;
  parts: Record<string, string>;
  causes: Record<string, { kind: string; short: string }>;
  patterns: Record<string, string>;
  /** Colours of words on each look. */
  texts: Record<string, string>;
  viewer: Record<string, string>;
  between: string;
  /** The colour of a block of several kinds. */
  several: string;
}

/** Disjoint intervals in order, and the time that lies before each. */
interface Union {
  s: Float64Array;
  e: Float64Array;
  before: Float64Array;
}
type Pair = [start: number, end: number];

/** Short name, full name, kind. */
type Name = [short: string, full: string, kind: Kind];
/** Rank, step, start, end, whether it is complete. */
type Step = [rank: number, step: number, start: number, end: number, isComplete: boolean];
/** Rank, name, start, end, depth. */
type Band = [rank: number, name: string, start: number, end: number, depth: number];

/** Operations of one kind, in order of start, and the row of each within the lane. */
interface Lane {
  kind: Kind;
  ops: Int32Array;
  starts: Float64Array;
  depth: Uint16Array;
  rows: number;
  longest: number;
}

/** One level of a host thread's icicle. */
interface Level {
  rows: number[];
  starts: Float64Array;
  longest: number;
}
interface HostEntry {
  rank: number;
  thread: number;
  role: string;
  frames: boolean;
  table: TableEntry;
}
interface HostLane extends HostEntry {
  label: string;
  start: Float64Array;
  length: Numbers;
  name: Numbers;
  depth: Numbers;
  levels: Level[];
}
interface Host {
  lanes: HostEntry[];
  names: [what: string, name: string][];
  unit: number;
  note: string;
}

interface CounterEntry {
  rank: number;
  name: string;
  unit: string;
  most?: number;
  table: TableEntry;
  /** Of memory: its categories, and the row of its peak. */
  parts?: string[];
  peak?: number;
}
type Counter = Pick<CounterEntry, "name" | "unit"> & {
  most: number;
  count: number;
  start: Float64Array;
  length: Numbers;
  value: Float64Array;
};

/** Memory by category: bytes of each, and their sum. */
type MemoryCounter = Counter & { parts: string[]; peak: number; levels: Numbers[] };

interface RankEntry {
  rank: number;
  operations: TableEntry;
  gaps: TableEntry;
}
type PartName = "compute" | "transfer" | "wait" | "comm" | "copy" | "unknown";
/** One rank: a column for each fact of its operations; a number that may be missing is 0, else one more.
 * Texts are places in the timeline's lists. */
interface Rank {
  rank: number;
  count: number;
  start: Float64Array;
  length: Numbers;
  end: Float64Array;
  name: Numbers;
  stream: Numbers;
  step: Numbers;
  delay: Numbers;
  launch: Numbers;
  thread: Numbers;
  operator: Numbers;
  path: Numbers;
  call: Numbers;
  bytes: Numbers;
  wait: Numbers;
  why: Numbers;
  instance: Numbers;
  awaited: Numbers;
  gap: { start: Float64Array; length: Numbers; cause: Numbers; doing: Numbers };
  first: number;
  last: number;
  steps: Step[];
  bands: Band[];
  u: Record<Kind | "transfer" | "wait", Union>;
  parts: Record<PartName, Union>;
  busy: Union;
  idle: [cause: string, u: Union][];
  readonly lanes: Lane[];
  /** Read after the first picture. */
  host: HostLane[];
  counters: (Counter | MemoryCounter)[];
}

interface Path {
  lanes: string[];
  shares?: [rank: number, share: number][];
  why_not: string;
  table: TableEntry;
  count: number;
  start: Float64Array;
  length: Numbers;
  rank: Numbers;
  lane: Numbers;
}
interface Timeline {
  ranks: Rank[];
  /** What the texts of operations and gaps say; nothing for an absent one. */
  names: Name[];
  streams: number[];
  threads: (number | "")[];
  calls: string[];
  whys: string[];
  launches: string[];
  operators: string[];
  paths: string[];
  doings: string[];
  causes: string[];
  knows_causes: boolean;
  steps: Step[];
  bands: Band[];
  pins: { rank: number; why: string }[];
  groups: { name: string; ranks: number[] }[];
  few: number;
  shifts: number[];
  zero: string;
  opening: number | null;
  hasWaits: boolean;
  begin: number;
  end: number;
  rankOf: Map<number, Rank>;
  read: TableReader;
  instances: Map<number, [rank: Rank, op: number][]>;
  path: Path;
  host: Host;
  counters: CounterEntry[];
}
/** The call of the rank that was awaited; its rank where the page has it. */
interface Last {
  number: number;
  rank: Rank | null;
  op: number | undefined;
}

interface RankRow {
  rank: Rank;
  why?: string;
  inside?: boolean;
  head?: boolean;
}
interface Placed {
  y: number;
  height: number;
  key: string;
}
interface OfRank extends RankRow {
  part: "folded" | "steps" | "idle" | Kind | `band${number}`;
}
interface OfHost extends RankRow {
  part: "host";
  lane: HostLane;
}
interface OfCounter extends RankRow {
  part: "counter";
  counter: Counter | MemoryCounter;
}
interface OfGroup {
  part: "group";
  group: { name: string };
  at: number;
  ranks: Rank[];
  isOpen: boolean;
  rank?: undefined;
  head?: undefined;
  inside?: undefined;
  why?: undefined;
}
type Unplaced = OfRank | OfHost | OfCounter | OfGroup;
type Row = Unplaced & Placed;
type RowOf<Part> = Extract<Row, { part: Part }>;

/** What lies under the pointer. */
interface Hit {
  row?: Row;
  t?: number;
  lane?: Lane;
  op?: number;
  event?: number;
  level?: number;
}

interface Colours extends Record<
  PartName | "idle" | "paper" | "ink" | "quiet" | "rule" | "soft" | "link" | "care",
  string
> {
  causes: Record<string, string>;
  host: Record<string, string>;
  counter: string;
  path: string;
  unmatched: string;
}
interface Fills {
  wait: Fill;
  unsplit: Fill;
  causes: Record<string, Fill>;
}

interface Operation {
  rank: Rank;
  op: number;
  kind: Kind;
}
interface HostEvent {
  rank: Rank;
  lane: HostLane;
  event: number;
  level: number;
  op?: undefined;
  kind?: undefined;
}
/** A stretch of a rank while another, `source`, waits for it. */
interface AwaitedStretch {
  rank: Rank;
  op: number;
  from: number;
  to: number;
  source: { rank: Rank; op: number };
}

/** The timeline's state. */
interface View {
  data: Timeline;
  canvas: HTMLCanvasElement;
  ctx: CanvasRenderingContext2D;
  scroller: HTMLElement;
  t0: number;
  t1: number;
  whole: Pair;
  scroll: number;
  width: number;
  height: number;
  left: number;
  ratio: number;
  dim: number;
  step: number | null;
  opened: Set<number>;
  folded: Set<number>;
  called: number[];
  before?: { folded: Set<number>; called: number[] };
  isPrinted: boolean;
  shows: Record<string, boolean>;
  hostDepth: number;
  layout: { rows: Row[]; height: number };
  divider: number | null;
  places: (rank: Rank, lane: string) => number | undefined;
  colours: Colours;
  fills: Fills;
  focus?: string;
  selected: Operation | (HostEvent & { kind?: undefined }) | null;
  awaited: AwaitedStretch | null;
  /** The moment of a memory lane that was clicked. */
  memory: { counter: MemoryCounter; at: number } | null;
  /** What a search has found: operations of a rank, and names of host events. */
  found: { has: (rank: Rank, op: number) => boolean; hasHost: (name: number) => boolean } | null;
  drag: Pair | null;
}

/** A figure as plotly's dictionaries have it: only what the page draws itself is named. */
interface Axis {
  type?: string;
  rangemode?: string;
  tickvals?: number[];
  ticktext?: string[];
  title: { text: string };
}
interface Trace {
  type?: string;
  name: string;
  mode: string;
  x: number[];
  y: number[];
  hidden?: boolean;
  visible?: boolean;
  hoverinfo?: string;
  hovertemplate: string;
  line: { color: string; width: number; dash?: string; shape?: string };
  marker: {
    color: string;
    size: number | number[];
    symbol?: string;
    opacity?: number;
    colors: string[];
    pattern?: { shape: string[] };
  };
  ids: string[];
  labels: string[];
  parents: string[];
  text: string[];
  values: number[];
  maxdepth?: number;
  /** The block that the reader has gone into. */
  top?: string;
}
interface Figure {
  data: Trace[];
  layout: { height?: number; xaxis: Axis; yaxis: Axis; annotations?: { text: string }[]; meta?: { choose?: string } };
}

interface Window {
  /** What the console and the tests of the page may touch. */
  TA: object;
}
