// What runs on the other pages: an examination, a memory snapshot, a trend.
import { startTables } from "./page/tables.js";
import { startLinks, startTheme, startTitles } from "./page/theme.js";

startTheme();
startTitles();
startLinks();
startTables();
