// What runs on the page of a comparison.
import { startStatuses } from "./comparison/statuses.js";
import { startTables } from "./page/tables.js";
import { startLinks, startTheme, startTitles } from "./page/theme.js";

startTheme();
startTitles();
startLinks();
startTables();
startStatuses();
