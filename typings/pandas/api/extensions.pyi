from pandas import ExtensionArray as ExtensionArray
